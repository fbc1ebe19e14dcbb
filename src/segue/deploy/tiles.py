"""A large image as overlapping tiles whose answers are blended: memory does not grow with the image's height.

Shapes: K channels, H x W pixels of the image, h x w of a tile. Tiles begin at multiples of `GRID`, so that a
network of stride 8, 16 or 32 samples them at the same places as the whole image. The outer quarter of an
overlap counts for nothing, since what is seen there lacks its surroundings; between the two quarters one tile
fades into the next. So a network that looks no farther than that quarter says the same as of the whole image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from segue.deploy.predictor import most_probable

GRID = 32
"""pixels between places where a tile may begin"""
LEAST_TILE = 2 * GRID
MOST_NUMBERS = 2**26
"""probabilities of the tiles that are seen together: 256 MiB"""

Rows = Callable[[int, int], np.ndarray]
"""the rows from one number up to another, rows x W x 3, uint8"""
Probabilities = Callable[[np.ndarray], np.ndarray]
"""images B x h x w x 3 -> probabilities B x K x h x w"""


class Strip(NamedTuple):
    """Some rows of an image, finished."""

    top: int
    pixels: np.ndarray
    """rows x W x 3, uint8"""
    ids: np.ndarray
    confidence: np.ndarray


class Side(NamedTuple):
    """The tiles along one side of an image."""

    places: list[slice]
    weights: list[np.ndarray]
    """weight of each pixel of each tile; over all tiles they add up to one at every pixel"""


def tile_length(asked: int) -> int:
    """The side of a tile: a multiple of the grid, not less than asked for."""
    return max(LEAST_TILE, -(-asked // GRID) * GRID)


def overlap_of(tile: int) -> int:
    """Pixels that neighbours have in common, at least: a quarter of the tile, on the grid."""
    return max(GRID, -(-tile // 4 // GRID) * GRID)


def plan_side(length: int, tile: int) -> Side:
    """Tiles from one end to the other, evenly spaced; the last one may be shorter by less than the grid."""
    if length <= tile:
        return Side([slice(0, length)], [np.ones(length, dtype=np.float32)])
    overlap = overlap_of(tile)
    way, step = -(-(length - tile) // GRID), (tile - overlap) // GRID
    count = -(-way // step) + 1
    starts = [number * way // (count - 1) * GRID for number in range(count)]
    places = [slice(start, min(start + tile, length)) for start in starts]
    raw = [_fade(place, length, overlap) for place in places]
    total = np.zeros(length)
    for place, weight in zip(places, raw, strict=True):
        total[place] += weight
    return Side(
        places,
        [(weight / total[place]).astype(np.float32) for place, weight in zip(places, raw, strict=True)],
    )


def _fade(place: slice, length: int, overlap: int) -> np.ndarray:
    """Zero in the outer quarter of the overlap, one beyond three quarters, one at the image's own border."""
    middle = np.arange(place.start, place.stop) + 0.5
    inside = np.full(len(middle), np.inf)
    if place.start > 0:
        inside = middle - place.start
    if place.stop < length:
        inside = np.minimum(inside, place.stop - middle)
    return np.clip((inside - overlap / 4) / (overlap / 2), 0, 1)


def blend_tiles(
    rows: Rows, size: tuple[int, int], probabilities: Probabilities, tile: int, batch: int
) -> Iterator[Strip]:
    """The finished rows of an image from top to bottom.

    Held at a time: a band of the image as high as a tile, and for the overlap with the tiles below one number
    per channel and pixel.
    """
    height, width = size
    down, across = plan_side(height, tile), plan_side(width, tile)
    above: np.ndarray | None = None
    for number, (place, weight) in enumerate(zip(*down, strict=True)):
        following = down.places[number + 1].start if number + 1 < len(down.places) else height
        done = following - place.start
        band = rows(place.start, place.stop)
        ids, confidence = np.empty((done, width), dtype=np.uint16), np.empty((done, width), dtype=np.float32)
        below: np.ndarray | None = None
        for columns, scores in _finished_columns(band, across, weight, probabilities, batch):
            if above is not None:
                scores[:, : above.shape[1]] += above[:, :, columns]
            ids[:, columns], confidence[:, columns] = most_probable(scores[:, :done])
            if following < place.stop:
                if below is None:
                    below = np.empty((len(scores), place.stop - following, width), dtype=np.float32)
                below[:, :, columns] = scores[:, done:]
            channels = len(scores)
        above = below
        yield Strip(place.start, band[:done], ids.astype(np.min_scalar_type(channels - 1)), confidence)


def _finished_columns(
    band: np.ndarray, across: Side, weight: np.ndarray, probabilities: Probabilities, batch: int
) -> Iterator[tuple[slice, np.ndarray]]:
    """Blended probabilities of a band of tiles, K x h x columns, as soon as no later tile adds to them."""
    width = band.shape[1]
    carried: np.ndarray | None = None
    for number, scores in enumerate(_tiles_seen(band, across.places, probabilities, batch)):
        place = across.places[number]
        following = across.places[number + 1].start if number + 1 < len(across.places) else width
        scores = scores * (weight[:, None] * across.weights[number])
        if carried is not None:
            scores[:, :, : carried.shape[2]] += carried
        done = following - place.start
        carried = scores[:, :, done:]
        yield slice(place.start, following), scores[:, :, :done]


def _tiles_seen(
    band: np.ndarray, places: Sequence[slice], probabilities: Probabilities, batch: int
) -> Iterator[np.ndarray]:
    """The probabilities of each tile of a band, seen together as far as sizes and memory allow."""
    waiting, together = list(places), 1  # the first one alone: it tells how many channels there are
    while waiting:
        length = waiting[0].stop - waiting[0].start
        group = [place for place in waiting[:together] if place.stop - place.start == length]
        seen = probabilities(np.stack([band[:, place] for place in group]))
        yield from seen
        waiting = waiting[len(group) :]
        together = max(1, min(batch, MOST_NUMBERS // seen[0].size))
