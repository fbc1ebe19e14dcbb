"""How large the images of a data set are, from a few of its files."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from segue.core.errors import UserError
from segue.data.datasets._files import FileDataset, Pair
from segue.data.datasets.base import SegDataset
from segue.data.image_files import opened

LOOKED_AT = 9
"""images whose size is read"""
_known: dict[tuple[type, str], int] = {}
"""sides that were looked up before: a study resolves many recipes for the same images"""


def usual_shorter_side(kind: type[SegDataset], config: Any) -> int | None:
    """The median length of the shorter side of training images, in pixels; None: they are not at hand.

    What is wrong with files or folders is not said here: a run says it when it reads them.
    """
    if (place := (kind, repr(config))) not in _known:
        try:
            dataset = kind(config, "train") if issubclass(kind, FileDataset) else None
        except UserError:
            return None
        sides = _shorter_sides(dataset.pairs) if isinstance(dataset, FileDataset) else []
        if not sides:
            return None
        _known[place] = int(median(sides))
    return _known[place]


def _shorter_sides(pairs: Sequence[Pair]) -> list[int]:
    sides = []
    for pair in pairs[:: max(1, len(pairs) // LOOKED_AT)][:LOOKED_AT]:
        try:
            with opened(pair.image) as image:
                sides.append(min(image.size))
        except UserError:
            continue
    return sides
