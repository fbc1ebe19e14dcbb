"""The user's own images and masks in a folder, with a list of class names (data/class_names.py).

Three layouts are understood; PART is `train` or `val`, or what `data.train` and `data.test` say:

    images/ and masks/                    lists PART.txt beside them, or sub-folders PART, or neither: then a
                                          share of the images, by a hash of their names, is for testing
    JPEGImages/ and SegmentationClass/    lists ImageSets/Segmentation/PART.txt, as VOC has them
    PART/ and PARTannot/                  as CamVid is often handed on

Masks hold class ids, as grey or palette images.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from segue.core.classes import ClassTable
from segue.core.errors import UserError
from segue.core.ordinary import user_path
from segue.data.class_names import read_class_names
from segue.data.datasets._files import FileDataset, Pair, data_root
from segue.data.datasets.base import DataSplit
from segue.data.layout import IMAGE_SUFFIXES, MASK_SUFFIXES, Subset, files_by_key, find_subset, subset_names

SAMPLED = 20
"""images that are looked at to find out how masks are named"""


@dataclass(frozen=True)
class Config:
    root: str | None = None
    """the folder"""
    classes: str = "classes.txt"
    """the file of class names, in the folder"""
    train: str = "train"
    """the subset that trains"""
    test: str = "val"
    """the subset that tests"""
    test_share: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """images for testing where neither lists nor sub-folders say which"""
    mask_suffix: str = ""
    """suffix of mask names after the image's name, such as _mask or _P"""
    bits: Annotated[int, Field(ge=9, le=16)] = 16
    """bits that carry the picture in 16-bit images: 12 for values up to 4095"""
    skip: str | None = None
    """a list of files to leave out, written by `segue data check --skip-bad`"""


class Folder(FileDataset):
    """Images, masks and classes of one's own."""

    Config = Config
    about = "your own images and masks with a classes.txt (data.root=FOLDER; docs/own-data.md)"
    protocol: ClassVar = {}

    def __init__(self, config: Config, split: DataSplit) -> None:
        root = data_root(config.root, "folder", "your own, with images, masks and classes.txt")
        self.classes = read_class_names(root / config.classes, "folder")
        self.bits = config.bits
        subset = find_subset(root, getattr(config, split), split, config.test_share)
        if subset.guessed:
            how = "a hash of their names says which images train and test (data.test_share)"
            self.notes = (f"{root} has neither lists nor sub-folders train and val: {how}.",)
        self._masks = files_by_key(subset.masks, MASK_SUFFIXES)
        if not self._masks and files_by_key(subset.masks, IMAGE_SUFFIXES):
            raise UserError(
                f"{subset.masks} holds JPEG or WebP files: they change ids. Masks are PNG, TIFF, BMP or GIF."
            )
        self._check_suffix(subset, config.mask_suffix)
        super().__init__(self._pairs(subset, config.mask_suffix), split, config.skip)

    @classmethod
    def known_classes(cls, config: Config) -> ClassTable | None:
        names = user_path(config.root or "") / config.classes
        return read_class_names(names, "folder") if config.root and names.exists() else None

    @classmethod
    def other_tests(cls, config: Config) -> dict[str, Config]:
        subsets = subset_names(user_path(config.root or ""))
        used = (config.train, config.test)
        return {name: replace(config, test=name) for name in subsets if name not in used}

    def _check_suffix(self, subset: Subset, suffix: str) -> None:
        """Whether masks have their images' names with another ending than the one that was said."""
        if not subset.keys or any(f"{key}{suffix}" in self._masks for key in subset.keys):
            return
        first = subset.keys[0]
        endings = (name.removeprefix(first) for name in self._masks if name.startswith(first))
        for ending in endings:
            if all(f"{key}{ending}" in self._masks for key in subset.keys[:SAMPLED]):
                raise UserError(
                    f"No mask in {subset.masks} has the name of its image, but they end in '{ending}':"
                    f" add data.mask_suffix={ending}"
                )

    def _pairs(self, subset: Subset, suffix: str) -> Iterable[Pair]:
        """Each key with the files that are there; of what is not there the most likely name."""
        images = files_by_key(subset.images, IMAGE_SUFFIXES)
        for key in subset.keys:
            mask = self._masks.get(f"{key}{suffix}", subset.masks / f"{key}{suffix}.png")
            yield Pair(key, images.get(key, subset.images / f"{key}.jpg"), mask)

    def mask_files(self) -> Iterable[Path]:
        return self._masks.values()


DATASET = Folder
