"""One look at every file of a data set, whatever is wrong with some of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from segue.core.errors import UserError
from segue.data.check_files import check_all
from segue.data.datasets.base import SegDataset
from segue.data.images import BadFile
from segue.data.index import keep_index


@dataclass(frozen=True)
class BadImage:
    """An image that cannot be used, and why."""

    key: str
    kind: str
    reason: str


@dataclass(frozen=True)
class Examined:
    """What the files of one split hold. Rows of the arrays are the good images, in order."""

    keys: tuple[str, ...]
    indices: np.ndarray
    """positions of the good images in the data set"""
    sizes: np.ndarray
    """height and width of each image"""
    pixels: np.ndarray
    """pixels of each of 256 ids in each mask"""
    peaks: np.ndarray
    """the largest value of each 16-bit grey image, 0 for others"""
    bad: tuple[BadImage, ...]

    @property
    def present(self) -> np.ndarray:
        """The class index of the good images."""
        return self.pixels > 0


def examine(dataset: SegDataset, advance: Callable[[int, int], None] | None = None) -> Examined:
    """Read and check every image and mask, in parallel; the class index of good files is kept."""
    chunks, bad, done = [], {}, 0
    for found in check_all(dataset):
        chunks.append(found)
        bad |= {done + position: error for position, error in found.bad.items()}
        done += len(found.pixels)
        if advance is not None:
            advance(done, len(dataset))
    good = np.array([index for index in range(done) if index not in bad], dtype=np.int64)
    keys = dataset.keys
    examined = Examined(
        tuple(keys[index] for index in good),
        good,
        np.concatenate([chunk.sizes for chunk in chunks])[good],
        np.concatenate([chunk.pixels for chunk in chunks])[good],
        np.concatenate([chunk.peaks for chunk in chunks])[good],
        tuple(BadImage(keys[index], _kind(error), str(error)) for index, error in bad.items()),
    )
    if not bad:
        keep_index(dataset, examined.present)
    return examined


def _kind(error: UserError) -> str:
    return error.kind if isinstance(error, BadFile) else "unreadable"
