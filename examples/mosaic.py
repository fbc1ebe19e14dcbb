"""A data set in one file: mosaics of textures in which every pixel has a class, and some classes are rare.

segue compare voc256.yaml --on examples/mosaic.py --split 8-1 --methods mib,caf model.weights=FILE

Nothing in it looks like VOC: no background, no objects, regions that touch. It shows whether settings that
were chosen on VOC carry over. A texture is a pattern with a typical size, direction and hue; all vary.
"""

from __future__ import annotations

import colorsys
import hashlib
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from PIL import Image

from segue.core.classes import ClassTable
from segue.data.datasets.base import DataSplit, Sample, SegDataset

PATTERNS = ("stripes", "checks", "dots", "clouds")
PERIODS = (6, 9, 13)
CLASSES = len(PATTERNS) * len(PERIODS)


@dataclass(frozen=True)
class Config:
    train: int = 300
    """training images"""
    test: int = 120
    """test images"""
    size: int = 192
    """pixels along a side"""


class Mosaic(SegDataset):
    Config = Config
    about = "mosaics of textures, generated on the fly: dense labels, 12 classes, 192 px"
    protocol: ClassVar[dict[str, Any]] = {}

    def __init__(self, config: Config, split: DataSplit) -> None:
        self.config, self.split = config, split
        names = (f"{pattern}-{period}" for period in PERIODS for pattern in PATTERNS)
        self.classes = ClassTable("mosaic", dict(enumerate(names)), background=None)
        count = {"train": config.train, "test": config.test}[split]
        self._keys = tuple(f"{split}-{index:05d}" for index in range(count))
        share = np.arange(1, CLASSES + 1) ** -0.7  # the later a class arrives, the fewer of its regions
        self._share = share / share.sum()

    @property
    def keys(self) -> tuple[str, ...]:
        return self._keys

    def fingerprint(self) -> str:
        return hashlib.sha256(f"1 {self.split} {asdict(self.config)}".encode()).hexdigest()

    def read(self, index: int) -> Sample:
        rng = np.random.default_rng([self.split == "test", index])
        mask = self._regions(rng)
        image = np.zeros((*mask.shape, 3))
        for class_id in np.unique(mask):
            place = np.nonzero(mask == class_id)
            image[place] = _texture(rng, int(class_id), place, self.config.size)
        light = 1 + 0.25 * _noise(rng, 3, self.config.size)
        image = image * light[:, :, None] + rng.normal(0, 0.06, image.shape)
        return Sample(self._keys[index], (image.clip(0, 1) * 255).astype(np.uint8), mask)

    def _regions(self, rng: np.random.Generator) -> np.ndarray:
        """Each pixel belongs to the nearest of a few points, with wavy borders."""
        size, count = self.config.size, rng.integers(5, 11)
        points, ids = rng.uniform(0, size, (count, 2)), rng.choice(CLASSES, count, p=self._share)
        y, x = np.mgrid[:size, :size] + 10 * np.stack([_noise(rng, 8, size), _noise(rng, 8, size)])
        distance = (y[:, :, None] - points[:, 0]) ** 2 + (x[:, :, None] - points[:, 1]) ** 2
        return ids[distance.argmin(2)].astype(np.uint8)


def _texture(rng: np.random.Generator, class_id: int, place: tuple[np.ndarray, ...], size: int) -> np.ndarray:
    """Two colours in the class's pattern, for the pixels of its regions."""
    pattern = PATTERNS[class_id % len(PATTERNS)]
    period = PERIODS[class_id // len(PATTERNS)] * rng.uniform(0.8, 1.25)
    angle = np.deg2rad(class_id * 37) + rng.normal(0, 0.25)
    y, x = (axis / period for axis in place)
    u, v = x * np.cos(angle) + y * np.sin(angle), y * np.cos(angle) - x * np.sin(angle)
    if pattern == "stripes":
        light = u % 1 < 0.5
    elif pattern == "checks":
        light = (u % 1 < 0.5) == (v % 1 < 0.5)
    elif pattern == "dots":
        light = (u % 1 - 0.5) ** 2 + (v % 1 - 0.5) ** 2 < 0.09
    else:
        light = _noise(rng, int(size / period) + 2, size)[place] > 0
    hue = class_id * 0.381966 + rng.normal(0, 0.06)  # golden section: neighbours differ
    vivid, bright = rng.uniform(0.2, 0.8), rng.uniform(0.45, 0.95)
    dark = colorsys.hsv_to_rgb((hue + rng.normal(0, 0.08)) % 1, 0.8 * vivid, bright * rng.uniform(0.35, 0.7))
    return np.where(light[:, None], colorsys.hsv_to_rgb(hue % 1, vivid, bright), dark)


def _noise(rng: np.random.Generator, cells: int, size: int) -> np.ndarray:
    """Smooth noise: a few random cells, enlarged."""
    grid = Image.fromarray(rng.normal(size=(cells, cells)).astype(np.float32))
    return np.asarray(grid.resize((size, size), Image.Resampling.BICUBIC))


DATASET = Mosaic
