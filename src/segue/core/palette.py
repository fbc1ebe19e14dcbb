"""Colours of classes in pictures: those that a data set ships, else colours that can be told apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np

from segue.core.classes import IGNORE, Colour

BACKGROUND: Colour = (232, 235, 236)
UNSCORED: Colour = (255, 255, 255)
LEVELS = (0, 36, 73, 109, 146, 182, 219, 255)
"""values of red, green and blue among which colours are chosen"""
LIGHTNESS = (0.38, 0.83)
"""bounds of a class colour in OKLab: neither lost in shadows nor taken for background"""
CHROMA = 0.09
"""least chroma of a class colour in OKLab: grey is background"""
TO_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
TO_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)
"""linear RGB -> cone responses -> OKLab (B. Ottosson, 2020)"""


def oklab(colours: Sequence[Colour] | np.ndarray) -> np.ndarray:
    """Colours in a space where distances are differences that people see, one row each."""
    rgb = np.asarray(colours, dtype=np.float64) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return np.cbrt(linear @ TO_CONES.T) @ TO_LAB.T


@cache
def distinct_colours(count: int) -> tuple[Colour, ...]:
    """Colours that can be told apart; a longer list begins with the shorter one.

    Each next colour is the one farthest from all colours so far, background and white among them.
    """
    grid = np.stack(np.meshgrid(LEVELS, LEVELS, LEVELS, indexing="ij"), axis=-1).reshape(-1, 3)
    lab = oklab(grid)
    low, high = LIGHTNESS
    usable = (lab[:, 0] >= low) & (lab[:, 0] <= high) & (np.hypot(lab[:, 1], lab[:, 2]) >= CHROMA)
    grid, lab = grid[usable], lab[usable]
    assert count <= len(grid), "masks have 8 bits"
    nearest = np.full(len(grid), np.inf)
    chosen: list[Colour] = []
    for taken in oklab([BACKGROUND, UNSCORED]):
        nearest = np.minimum(nearest, np.linalg.norm(lab - taken, axis=1))
    for _ in range(count):
        best = int(np.argmax(nearest.round(6)))  # rounded: the same choice on every processor
        red, green, blue = grid[best].tolist()
        chosen.append((red, green, blue))
        nearest = np.minimum(nearest, np.linalg.norm(lab - lab[best], axis=1))
    return tuple(chosen)


def class_colours(class_ids: Sequence[int], shipped: Mapping[int, Colour] | None) -> list[Colour]:
    """The colour of each class: as the data set ships it, else the next one that can be told apart."""
    if shipped is not None and all(class_id in shipped for class_id in class_ids):
        return [shipped[class_id] for class_id in class_ids]
    return list(distinct_colours(len(class_ids)))


def flat_palette(colours: Sequence[Colour]) -> list[int]:
    """The palette of a picture of labels: background, the classes from 1 on, white for what is not scored."""
    entries = [BACKGROUND, *colours]
    entries += [UNSCORED] * (IGNORE + 1 - len(entries))
    return [value for colour in entries for value in colour]


def hexadecimal(colour: Colour) -> str:
    """A colour as CSS has it."""
    return "#" + bytes(colour).hex()
