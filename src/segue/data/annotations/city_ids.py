"""Cityscapes ids: masks NAME_gtFine_labelIds.png (or labelTrainIds) without the polygons they were made of.

The 19 classes of the benchmark; all other raw labels are void. Where a mask has both, labelIds count.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from segue.core.errors import UserError
from segue.data.annotations.base import VOID, Drawing, Source
from segue.data.annotations.locate import Places, walk
from segue.data.annotations.masks import ValueMask
from segue.data.annotations.polygons import find_image
from segue.data.datasets.cityscapes import CLASSES, RAW_LABELS

RAW_END, TRAIN_END = "_labelIds.png", "_labelTrainIds.png"


def id_masks(folder: Path) -> list[Path]:
    """The masks of ids below a folder, one kind of them."""
    found = [path for path in walk(folder) if path.name.endswith((RAW_END, TRAIN_END))]
    raw = [path for path in found if path.name.endswith(RAW_END)]
    return raw or found


def read_city_ids(name: str, masks: list[Path], places: Places) -> Source:
    """Masks of ids, each with its image."""
    raw = masks[0].name.endswith(RAW_END)
    table = np.full(256, -1, dtype=np.int16)
    table[[*range(RAW_LABELS if raw else 0), 255]] = VOID
    table[list(CLASSES) if raw else range(len(CLASSES))] = range(1, len(CLASSES) + 1)
    drawings = tuple(_read_pair(mask, RAW_END if raw else TRAIN_END, table, places) for mask in masks)
    return Source(name, "cityscapes ids", tuple(CLASSES.values()), drawings)


def _read_pair(mask: Path, end: str, table: np.ndarray, places: Places) -> Drawing:
    try:
        if not places.allows(mask):
            raise UserError(f"{mask} is a link to a place outside of {places.root}. Copy it.")
        stem = mask.name.removesuffix(end).removesuffix("_gtFine").removesuffix("_gtCoarse")
        image = find_image(mask, stem, places)
    except UserError as error:
        return Drawing(mask, places.name(mask), split=places.split(mask), problem=str(error))
    ready = ValueMask(mask, table, Path("Cityscapes' list of labels"))
    return Drawing(mask, places.name(image), image, mask=ready, split=places.split(mask))
