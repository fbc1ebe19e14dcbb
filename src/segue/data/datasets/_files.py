"""What data sets of files have in common: pairs of an image and a mask, read, checked and left out alike."""

from __future__ import annotations

import hashlib
import os
from abc import abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from segue.core.errors import UserError
from segue.core.ordinary import user_path
from segue.data.datasets.base import DataSplit, Sample, SegDataset
from segue.data.images import Content, check_pair, read_image, read_mask
from segue.data.skip import skipped_keys


class Pair(NamedTuple):
    """An image and its mask."""

    key: str
    image: Path
    mask: Path


class FileDataset(SegDataset):
    """A data set whose images and masks are files. A subclass finds them; abstract."""

    class_ids: np.ndarray | None = None
    """class id of each of the 256 mask values, -1 for a value without meaning; None: masks hold class ids"""
    bits: int = 16
    """bits that carry the picture in 16-bit images"""

    def __init__(self, pairs: Iterable[Pair], split: DataSplit, skip: str | None) -> None:
        left_out = skipped_keys(skip, self.classes.dataset, split) if skip is not None else frozenset()
        pairs = tuple(pairs)
        _check_names(pairs)
        self.pairs = tuple(pair for pair in pairs if pair.key not in left_out)
        self.skipped = tuple(pair for pair in pairs if pair.key in left_out)
        if not self.pairs:
            why = f"all are on the list {skip}" if self.skipped else "is data.root right?"
            raise UserError(f"The data set {self.classes.dataset} has no image for '{split}': {why}")
        self._keys = tuple(pair.key for pair in self.pairs)

    @abstractmethod
    def mask_files(self) -> Iterable[Path]:
        """Every mask in the folders of this split, whether or not an image goes with it."""

    @property
    def keys(self) -> tuple[str, ...]:
        return self._keys

    def read(self, index: int) -> Sample:
        key, image, mask = self.pairs[index]
        values = read_mask(mask)
        if self.class_ids is not None:
            values = self.class_ids.astype(np.uint8).take(values)
        return Sample(key, read_image(image, self.bits), values)

    def check(self, index: int) -> Content:
        _, image, mask = self.pairs[index]
        return check_pair(image, mask, self.classes, self.class_ids, self.bits)

    def fingerprint(self) -> str:
        """Names, sizes and times of all files stand for their content: looking at them is quick."""
        ids = None if self.class_ids is None else self.class_ids.tolist()
        digest = hashlib.sha256(f"{self.classes!r} {ids} {self.bits}".encode())
        for _, *paths in self.pairs:
            for path in paths:
                try:
                    stat = path.stat()
                    digest.update(os.fsencode(f"{path} {stat.st_size} {stat.st_mtime_ns}\n"))
                except OSError:
                    digest.update(os.fsencode(f"{path} missing\n"))
        return digest.hexdigest()


def data_root(root: str | None, dataset: str, what: str) -> Path:
    """The folder that data.root names; `what` says what it should be."""
    if root is None:
        raise UserError(f"The data set {dataset} needs its folder: add data.root=FOLDER ({what}).")
    folder = user_path(root)
    if not folder.is_dir():
        fate = "is no folder" if folder.exists() else "does not exist"
        raise UserError(f"The data folder {folder} {fate}. Set data.root to {what}.")
    return folder


def _check_names(pairs: Iterable[Pair]) -> None:
    """Keys stand in records and lists: they are plain text, and each names one image."""
    first: dict[str, Path] = {}
    for key, image, _ in pairs:
        if not key.isprintable():  # control characters, or bytes that are no UTF-8
            raise UserError(f"The name of the image {str(image)!r} is no plain text: rename it.")
        if first.setdefault(key, image) != image:
            raise UserError(f"{first[key]} and {image} have the same name: rename one.")
