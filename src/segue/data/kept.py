"""Old images that may be shown again while a model learns new classes: a folder as in docs/own-data.md.

Such a folder has its own ids for the classes; names tell which of the model's channels they are. Its training
images are used, so that those for testing can still score the old classes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from segue.core import plugins
from segue.core.errors import UserError, reason
from segue.core.ordinary import read_ordinary
from segue.core.scenario import Scenario
from segue.data.datasets.base import Sample, SegDataset


@dataclass(frozen=True)
class KeptImages:
    """The images of a folder that show a class, and what their masks' ids become at each step."""

    dataset: SegDataset
    images: np.ndarray
    """places of the images in the data set"""
    tables: np.ndarray
    """label of each of the 256 ids, a row for each step"""

    @property
    def keys(self) -> list[str]:
        return [self.dataset.keys[image] for image in self.images]


def open_kept(folder: str) -> SegDataset:
    """The training images of a folder of kept images."""
    kind = plugins.find("dataset", "folder")
    return kind(kind.Config(root=folder), "train")


def kept_digest(dataset: SegDataset) -> str:
    """A hash of everything in the kept images: class names, image files, masks."""
    digest = hashlib.blake2b(repr(dataset.classes).encode(), digest_size=32)
    for key, *paths in getattr(dataset, "pairs", ()):
        digest.update(key.encode())
        for path in paths:
            try:
                digest.update(hashlib.blake2b(read_ordinary(path)).digest())
            except OSError as error:
                raise UserError(f"Cannot read {path}: {reason(error)}.") from error
    return digest.hexdigest()


def choose_kept(
    dataset: SegDataset, present: np.ndarray, scenario: Scenario, old: Sequence[str]
) -> KeptImages:
    """The images that show one of the `old` classes, labelled with all classes that they name."""
    names = scenario.classes.names
    classes = dataset.classes.beside(name for group in scenario.groups for name in map(names.get, group))
    groups = tuple(tuple(classes.resolve(names[class_id]) for class_id in group) for group in scenario.groups)
    theirs = Scenario(classes, groups, "sequential", scenario.void, scenario.future)
    images = np.flatnonzero(present[:, [classes.resolve(name) for name in old]].any(axis=1))
    return KeptImages(dataset, images, np.stack([theirs.label_table(step) for step in theirs]))


class Joined(SegDataset):
    """Two data sets, one after the other."""

    def __init__(self, first: SegDataset, second: SegDataset) -> None:
        self.first, self.second = first, second
        self.classes = first.classes

    @property
    def keys(self) -> tuple[str, ...]:
        return (*self.first.keys, *self.second.keys)

    def read(self, index: int) -> Sample:
        count = len(self.first)
        return self.first.read(index) if index < count else self.second.read(index - count)

    def fingerprint(self) -> str:
        return f"{self.first.fingerprint()} {self.second.fingerprint()}"
