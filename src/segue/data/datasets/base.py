"""The contract of a data set: images with masks in its own class ids. It knows nothing of steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from segue.core.classes import ClassTable
from segue.data.images import Content, check_mask

DataSplit = Literal["train", "test"]


@dataclass(frozen=True)
class Sample:
    """One image and its mask as the annotator drew it.

    Examples:
        >>> import numpy as np, segue
        >>> image, mask = np.zeros((32, 48, 3), np.uint8), np.zeros((32, 48), np.uint8)
        >>> segue.Sample("first", image, mask).key
        'first'
    """

    key: str
    image: np.ndarray
    """uint8, height x width x 3"""
    mask: np.ndarray
    """uint8 class ids, height x width"""


class SegDataset(ABC):
    """One split of a data set. Subclasses are final and are built as `Cls(config, split)`.

    A file that ends with `DATASET = Stripes` is a data set: `segue train caf --on stripes.py --split 1-1`.

    Examples:
        >>> from dataclasses import dataclass
        >>> import numpy as np, segue
        >>> @dataclass(frozen=True)
        ... class Config:
        ...     images: int = 10
        >>> class Stripes(segue.SegDataset):
        ...     Config, about, protocol = Config, "left and right halves", {"train": {"crop": 32}}
        ...
        ...     def __init__(self, config, split):
        ...         self.config, self.split = config, split
        ...         self.classes = segue.ClassTable("stripes", {1: "left", 2: "right"})
        ...
        ...     @property
        ...     def keys(self):
        ...         return tuple(f"{self.split}-{index}" for index in range(self.config.images))
        ...
        ...     def read(self, index):
        ...         mask = np.ones((32, 32), np.uint8)
        ...         mask[:, 16:] = 2
        ...         return segue.Sample(self.keys[index], np.repeat(mask[..., None] * 100, 3, axis=2), mask)
        ...
        ...     def fingerprint(self):
        ...         return f"stripes {self.config} {self.split}"
        >>> data = Stripes(Config(), "train")
        >>> len(data), data[3].key, data.check(3).pixels[:3].tolist()
        (10, 'train-3', [0, 512, 512])
    """

    Config: ClassVar[type]
    """frozen dataclass: the keys of the recipe's `data` section"""
    about: ClassVar[str]
    """description in one line, for `segue list datasets`"""
    protocol: ClassVar[dict[str, Any]]
    """the training protocol: recipe sections that differ from the defaults"""
    orders: ClassVar[Mapping[str, tuple[int, ...]]] = {}
    """class orders that have a name: `scenario.order=NAME`"""
    divided_as: ClassVar[Mapping[str, str]] = {}
    """splits whose images are those of a finer split, merged, in mode `divided`"""
    no_modes: ClassVar[Mapping[str, str]] = {}
    """modes that would mislead on this data set, each with the reason that a user is told"""
    published: ClassVar[int | None] = None
    """training images of the published data set: what a plan counts with where the data is not at hand"""
    published_steps: ClassVar[Mapping[str, tuple[int, ...]]] = {}
    """training images of the steps of published splits, by split, mode and named order (15-5 disjoint)"""
    classes: ClassTable
    notes: tuple[str, ...] = ()
    """notes for `segue data check` on how the images were found"""

    @abstractmethod
    def __init__(self, config: Any, split: DataSplit) -> None: ...

    @classmethod
    def other_tests(cls, config: Any) -> dict[str, Any]:
        """Configs that test on other images of the same place, by the name of the part: a third list."""
        return {}

    @classmethod
    def known_classes(cls, config: Any) -> ClassTable | None:
        """The classes, where they are known without the images."""
        classes = getattr(cls, "classes", None)
        return classes if isinstance(classes, ClassTable) else None

    @classmethod
    def own_memory(cls, config: Any) -> int:
        """Bytes that these settings make the data set hold by itself: where they can ask for too much."""
        return 0

    @property
    @abstractmethod
    def keys(self) -> tuple[str, ...]:
        """Unique, stable names of the images, in order."""

    @abstractmethod
    def read(self, index: int) -> Sample:
        """Image and mask; a file that cannot be used raises `UserError` naming it."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Changes whenever the content may have changed; the class index is cached under it."""

    def check(self, index: int) -> Content:
        """What is in one mask, after checking that image and mask are usable."""
        sample = self.read(index)
        names = f"The mask of {sample.key}", sample.key
        return check_mask(sample.mask, sample.image.shape[:2], self.classes, *names)

    def __getitem__(self, index: int) -> Sample:
        return self.read(index)

    def __len__(self) -> int:
        return len(self.keys)
