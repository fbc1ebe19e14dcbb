"""What every annotation format is read into: a source of drawings, each an image and what lies on it.

Names stand for classes. Some names mean void (not scored) or background; neither is a class. In a mask 0 is
background, 1 to K are the classes of the source in order, 255 is void.
"""

from __future__ import annotations

import re
import reprlib
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np

from segue.core.errors import UserError
from segue.data.class_names import BACKGROUND_NAMES, VOID_NAMES

Split = Literal["train", "val", "test"]

BACKGROUND, VOID = 0, 255
MOST_CLASSES = 254
LONGEST_NAME = 100

NOT_SCORED = VOID_NAMES | {"out of roi", "rectification border", "ego vehicle"}
"""the last three are Cityscapes' words"""


@dataclass(frozen=True)
class Outline:
    """A polygon as drawing programs fill it: pixels on its border belong to it."""

    points: np.ndarray
    """N x 2 float64, x and y"""


@dataclass(frozen=True)
class Box:
    """A rectangle; both corner pixels belong to it."""

    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True)
class Disc:
    x: float
    y: float
    radius: float


@dataclass(frozen=True)
class Patch:
    """A small PNG whose non-zero pixels belong to the region; `left`, `top` is where it lies."""

    left: int
    top: int
    width: int
    height: int
    png: bytes


@dataclass(frozen=True)
class Rings:
    """One or several polygons, filled together by COCO's rule."""

    polygons: tuple[np.ndarray, ...]
    """arrays of N x 2 float64"""


@dataclass(frozen=True)
class Runs:
    """Run lengths down the columns, off and on in turn, beginning with off."""

    height: int
    width: int
    counts: np.ndarray
    """int64; they add up to height * width"""

    @property
    def area(self) -> int:
        return int(self.counts[1::2].sum())


Geometry = Outline | Box | Disc | Patch | Rings | Runs


@dataclass(frozen=True)
class Region:
    name: str
    geometry: Geometry


class ReadyMask(Protocol):
    """A mask that exists as a file."""

    path: Path

    def read(self) -> np.ndarray:
        """uint8, height x width: 0, 1 to K, 255 as everywhere here."""


@dataclass(frozen=True)
class Drawing:
    """One image and what was drawn on it."""

    file: Path
    """the annotation file, for messages"""
    name: str
    """the image's path below its folder, with /"""
    image: Path | None = None
    """path of the image; None: the annotation file holds the image"""
    size: tuple[int, int] | None = None
    """width and height as the annotation states them"""
    regions: tuple[Region, ...] = ()
    """shapes, from back to front"""
    largest_first: bool = False
    """the format knows no order: small regions shall stay visible"""
    mask: ReadyMask | None = None
    """a finished mask; then there are no regions"""
    split: Split | None = None
    left_out: int = 0
    """shapes that cover no area"""
    boxes: int = 0
    """bounding boxes without an outline"""
    problem: str = ""
    """why this image cannot be used; nothing else can be trusted then"""


@dataclass(frozen=True)
class Source:
    """Everything that was found in an annotation folder or file."""

    name: str
    format: str
    classes: tuple[str, ...]
    drawings: tuple[Drawing, ...]
    notes: tuple[str, ...] = ()


def is_void(name: str) -> bool:
    return name.casefold() in NOT_SCORED


def is_background(name: str) -> bool:
    return name.casefold() in BACKGROUND_NAMES


def classes_of(names: Iterable[str], where: Path) -> tuple[str, ...]:
    """The names that are classes, each once, in the order given."""
    classes = tuple(name for name in dict.fromkeys(names) if not is_void(name) and not is_background(name))
    if not classes:
        raise UserError(f"{where} has no class: nothing but background and void was found there.")
    if len(classes) > MOST_CLASSES:
        raise UserError(
            f"{where} has {len(classes)} classes, but masks are 8 bit, so at most {MOST_CLASSES}"
            " are possible. Join or remove some."
        )
    return classes


def value_of(name: str, classes: tuple[str, ...]) -> int:
    """What stands in a mask for a name."""
    if is_void(name):
        return VOID
    return BACKGROUND if is_background(name) else classes.index(name) + 1


def class_name(value: object, where: str) -> str:
    """A name that can stand on a line of classes.txt."""
    if not isinstance(value, str):
        raise UserError(f"{where}: a class name should be text, not {show(value)}.")
    name = unicodedata.normalize("NFC", value.strip())
    if not name:
        raise UserError(f"{where}: a class name is empty.")
    if len(name) > LONGEST_NAME:
        raise UserError(f"{where}: the class name {show(name)} is longer than {LONGEST_NAME} characters.")
    if any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in name):
        raise UserError(f"{where}: the class name {show(name)} holds control characters.")
    return name


_SPLIT_WORD = re.compile(r"(train|val|test)(ing|id|idation|set|data|extra)?")


def split_of(text: str) -> Split | None:
    """The part of the data that a file or folder name speaks of, such as instances_train2017."""
    words = [match for word in re.split(r"[^a-z]+", text.lower()) if (match := _SPLIT_WORD.fullmatch(word))]
    found = {match[1] for match in words}
    return found.pop() if len(found) == 1 else None  # type: ignore[return-value]


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 60
_SHORT.maxlevel = 3  # a value may be nested so deeply that repr would fail


def show(value: object) -> str:
    """A foreign value for a message: quoted, short, on one line, printable."""
    text = _SHORT.repr(value)
    return text if text.isprintable() else ascii(text)[1:-1]


def tell(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def note_first(found: Iterable[tuple[int, object]], one: str, many: str) -> tuple[str, ...]:
    """A sentence on how many there are and where the first is, or nothing."""
    counted = [(count, where) for count, where in found if count]
    total = sum(count for count, _ in counted)
    return (f"{tell(total, one, many)}, first in {counted[0][1]}.",) if total else ()


def note_left_out(drawings: Sequence[Drawing]) -> tuple[str, ...]:
    """Sentences on shapes without area and on boxes, as far as there are any."""
    shapes = [(drawing.left_out, drawing.file) for drawing in drawings]
    boxes = [(drawing.boxes, drawing.file) for drawing in drawings]
    return (
        *note_first(shapes, "shape without area was left out", "shapes without area were left out"),
        *note_first(
            boxes,
            "annotation is a box without an outline: left out",
            "annotations are boxes without an outline: left out",
        ),
    )
