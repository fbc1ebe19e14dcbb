"""One look at every file of a data set, whatever is wrong with some of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from segue.core.errors import UserError
from segue.data.datasets.base import SegDataset
from segue.data.images import BadFile, Content


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
    """their places in the data set"""
    sizes: np.ndarray
    """height and width of each image"""
    pixels: np.ndarray
    """pixels of each of 256 ids in each mask"""
    bad: tuple[BadImage, ...]

    @property
    def present(self) -> np.ndarray:
        """The class index of the good images."""
        return self.pixels > 0


def examine(dataset: SegDataset, advance: Callable[[int, int], None] | None = None) -> Examined:
    """Read and check every image and mask, in parallel."""
    indices, sizes, bad = [], [], []
    pixels = np.zeros((len(dataset), 256), dtype=np.uint32)

    def look(index: int) -> Content | UserError:
        try:
            return dataset.check(index)
        except UserError as error:
            return error

    pool = ThreadPoolExecutor(max_workers=os.cpu_count())
    try:
        for index, found in enumerate(pool.map(look, range(len(dataset)))):
            if isinstance(found, Content):
                pixels[len(indices)] = found.pixels
                indices.append(index)
                sizes.append(found.size)
            else:
                kind = found.kind if isinstance(found, BadFile) else "unreadable"
                bad.append(BadImage(dataset.keys[index], kind, str(found)))
            if advance is not None:
                advance(index + 1, len(dataset))
    finally:
        pool.shutdown(cancel_futures=True)  # Ctrl-C does not wait for the files that are left
    table = np.array(sizes, dtype=np.int64).reshape(-1, 2)
    keys = tuple(dataset.keys[index] for index in indices)
    return Examined(keys, np.array(indices, dtype=np.int64), table, pixels[: len(keys)], tuple(bad))
