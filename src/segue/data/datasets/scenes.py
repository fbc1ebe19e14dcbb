"""The embedded data set: textured shapes on textured backgrounds, painted on the fly from a seed.

A class is a form with a texture and a typical hue. Form and texture are shared with other classes and hues
overlap, so a model has to use several cues; none of them changes when an image is mirrored. Most images hold
several classes, so that old and future classes really hide in a step's background. An image depends on the
config, the split and its index, never on what was read before.
"""

from __future__ import annotations

import colorsys
import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from PIL import Image
from pydantic import Field

from segue.core.classes import ClassTable
from segue.core.config import Count, Seed
from segue.data.datasets.base import DataSplit, Sample, SegDataset
from segue.data.images import Content

GENERATOR_VERSION = 1
"""Raise it with any change of the pictures: results on other pictures are other results."""

FORMS = ("disc", "square", "triangle")
TEXTURES = ("barred", "striped", "checked", "dotted")
"""barred is horizontal, striped is vertical"""
HUES = 9
"""hues on the colour circle; a class beyond that shares one with a class of another texture"""
MAX_CLASSES = len(FORMS) * len(TEXTURES)
SPLIT_CODES: dict[DataSplit, int] = {"train": 0, "test": 1}
CLUTTER = ((4, 0.16), (8, 0.10), (32, 0.07))
"""the background's smooth noise: cells per side of each grid, and its strength"""
GRAIN = 0.05
"""strength of every pixel's own noise"""

BYTES_PER_IMAGE, BYTES_PER_PIXEL = 350, 56
"""memory of an image's name and its row of the class index; of a pixel while an image is painted"""


@dataclass(frozen=True)
class Config:
    """`size` changes the resolution and not the scene: all lengths grow with it."""

    size: Annotated[int, Field(ge=32)] = 64
    """height and width of an image in pixels"""
    classes: Annotated[int, Field(ge=2, le=MAX_CLASSES)] = 9
    """number of classes; a class looks the same whatever their number"""
    train: Count = 800
    """images of the training split"""
    test: Count = 300
    """images of the test split"""
    seed: Seed = 0
    """seed of the generator; each seed is a data set of the same kind"""
    max_objects: Annotated[int, Field(ge=1, le=1000)] = 3
    """an image holds one object up to this many"""


class Shape(NamedTuple):
    """One object's place; its own coordinates (u, v) are in units of its radius."""

    class_id: int
    x: float
    y: float
    radius: float
    angle: float

    def local(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        cos, sin = np.cos(self.angle) / self.radius, np.sin(self.angle) / self.radius
        x, y = x - self.x, y - self.y
        return cos * x + sin * y, cos * y - sin * x

    def covers(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        u, v = self.local(x, y)
        form = _form(self.class_id)
        if form == "disc":
            return u * u + v * v <= 1
        if form == "square":
            return np.maximum(np.abs(u), np.abs(v)) <= 0.9
        return (np.abs(u) <= 0.58 * (v + 1.1)) & (v <= 0.8)


class Scenes(SegDataset):
    """One split of generated scenes."""

    Config = Config
    about = "textured shapes on textured backgrounds, generated on the fly: no files, 64 px"
    protocol: ClassVar[dict[str, Any]] = {
        "model": {"backbone": "tiny", "head": "tiny", "output_stride": 8},
        "optim": {"lr_first": 0.05, "lr_next": 0.02},
        "train": {
            "epochs": 12,
            "epochs_next": 8,
            "batch_size": 16,
            "crop": 64,
            "scale": (0.6, 1.0),
            "workers": 0,
        },
    }

    def __init__(self, config: Config, split: DataSplit) -> None:
        self.config = config
        self.split = split
        self.classes = self.known_classes(config)
        count = {"train": config.train, "test": config.test}[split]
        self._keys = tuple(f"{split}-{index:05d}" for index in range(count))
        axis = np.arange(config.size, dtype=np.float64)
        self._x, self._y = axis[None, :], axis[:, None]
        self._clutter = [(_enlarger(cells, config.size), strength) for cells, strength in CLUTTER]

    @classmethod
    def known_classes(cls, config: Config) -> ClassTable:
        return ClassTable("scenes", {k: class_name(k) for k in range(1, config.classes + 1)})

    @classmethod
    def own_memory(cls, config: Config) -> int:
        """Names and class index of all images, and an image while it is painted."""
        return (config.train + config.test) * BYTES_PER_IMAGE + config.size**2 * BYTES_PER_PIXEL

    @property
    def keys(self) -> tuple[str, ...]:
        return self._keys

    def read(self, index: int) -> Sample:
        rng = self._rng(index)
        shapes, owner, mask = self._arrange(rng)
        return Sample(self._keys[index], self._paint(rng, shapes, owner), mask)

    def check(self, index: int) -> Content:
        """What is in one mask; the scene is arranged but not painted."""
        _, _, mask = self._arrange(self._rng(index))
        return Content(mask.shape, np.bincount(mask.ravel(), minlength=256))

    def fingerprint(self) -> str:
        content = {"generator": GENERATOR_VERSION, "split": self.split, **asdict(self.config)}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def _rng(self, index: int) -> np.random.Generator:
        if not 0 <= index < len(self._keys):
            raise IndexError(f"scenes: no {self.split} image {index}; there are {len(self._keys)}")
        return np.random.default_rng([self.config.seed, SPLIT_CODES[self.split], index])

    def _arrange(self, rng: np.random.Generator) -> tuple[list[Shape], np.ndarray, np.ndarray]:
        """Shapes from back to front, which of them owns each pixel (-1: none), and the mask.

        Everything that the mask depends on is drawn first, so that `check` may leave out the painting.
        """
        size = self.config.size
        shapes = []
        for _ in range(rng.integers(1, self.config.max_objects, endpoint=True)):
            class_id = int(rng.integers(1, self.config.classes, endpoint=True))
            x, y = rng.uniform(0.1, 0.9, 2) * size
            radius = rng.uniform(8, 15) * size / 64
            shapes.append(Shape(class_id, x, y, radius, rng.uniform(-0.3, 0.3)))
        owner = np.full((size, size), -1)
        for number, shape in enumerate(shapes):
            owner[shape.covers(self._x, self._y)] = number
        # The background's id stands last, where the owner -1 finds it.
        ids = np.array([*(shape.class_id for shape in shapes), 0], dtype=np.uint8)
        return shapes, owner, ids[owner]

    def _paint(self, rng: np.random.Generator, shapes: list[Shape], owner: np.ndarray) -> np.ndarray:
        """The image: background, visible part of each shape, pixel noise."""
        hsv = rng.uniform((0, 0.05, 0.3), (1, 0.4, 0.8))
        canvas = np.empty((3, *owner.shape), dtype=np.float32)
        canvas[:] = np.reshape(colorsys.hsv_to_rgb(*hsv), (3, 1, 1))
        for enlarge, strength in self._clutter:
            count = enlarge.shape[1]
            canvas += enlarge @ _noise(rng, (3, count, count), strength) @ enlarge.T
        for number, shape in enumerate(shapes):
            rows, columns = np.nonzero(owner == number)
            canvas[:, rows, columns] = _paint_shape(rng, shape, columns, rows, self.config.size)
        canvas += _noise(rng, canvas.shape, GRAIN)
        return np.ascontiguousarray((canvas.clip(0, 1) * 255).astype(np.uint8).transpose(1, 2, 0))


def class_name(class_id: int) -> str:
    return f"{_texture(class_id)} {_form(class_id)}"


def _form(class_id: int) -> str:
    return FORMS[(class_id - 1) % len(FORMS)]


def _texture(class_id: int) -> str:
    return TEXTURES[(class_id - 1) // len(FORMS)]


def _noise(rng: np.random.Generator, shape: tuple[int, ...], strength: float) -> np.ndarray:
    """Uniform in +-strength; drawn as float32, which is several times faster than a normal distribution."""
    noise = rng.random(shape, dtype=np.float32)
    noise -= np.float32(0.5)
    noise *= np.float32(2 * strength)
    return noise


def _enlarger(cells: int, size: int) -> np.ndarray:
    """The matrix that enlarges a column of cells to `size` pixels, bicubic."""
    unit = Image.fromarray(np.eye(cells, dtype=np.float32))
    return np.asarray(unit.resize((cells, size), Image.Resampling.BICUBIC))


def _paint_shape(
    rng: np.random.Generator, shape: Shape, x: np.ndarray, y: np.ndarray, size: int
) -> np.ndarray:
    """Colours (3 x pixels) of a shape at the pixels x, y."""
    hue = (shape.class_id - 1) / HUES + rng.normal(0, 0.05)
    saturation, value, shade = rng.uniform((0.55, 0.6, 0.35), (0.95, 1.0, 0.6))
    # Under 4 px the texture would be lost between the pixels, so it stops shrinking there.
    period = rng.uniform(5, 7) * max(size / 64, 0.8)
    wave = 2 * np.pi * shape.radius / period
    u, v = shape.local(x, y)
    phase_u, phase_v = rng.uniform(0, 2 * np.pi, 2)
    across, down = np.sin(wave * u + phase_u), np.sin(wave * v + phase_v)
    texture = _texture(shape.class_id)
    if texture == "barred":
        dark = down < 0
    elif texture == "striped":
        dark = across < 0
    elif texture == "checked":
        dark = across * down < 0
    else:
        dark = across + down < 0.6
    colour = np.array(colorsys.hsv_to_rgb(hue % 1, saturation, value))
    return colour[:, None] * np.where(dark, shade, 1)


DATASET = Scenes
