"""Reading image and mask files, with a sentence for whatever can be wrong with them."""

from __future__ import annotations

import threading
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image, UnidentifiedImageError

from segue.core.classes import ClassTable
from segue.core.errors import UserError

Problem = Literal["missing", "unreadable", "wrong size", "unknown id"]


class BadFile(UserError):
    """A file that cannot be used for training; `kind` is for those who count."""

    def __init__(self, kind: Problem, message: str) -> None:
        super().__init__(message)
        self.kind: Problem = kind


@dataclass(frozen=True)
class Content:
    """What a look at an image and its mask has found."""

    size: tuple[int, int]
    """height, width"""
    pixels: np.ndarray
    """256 numbers: how many pixels have each class id"""


_FILTERS = threading.Lock()
"""warning filters belong to the whole process: without it threads would undo each other's"""


def _open(path: Path) -> Image.Image:
    with _FILTERS, warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        return Image.open(path)


def _fail(path: Path, error: Exception) -> BadFile:
    if isinstance(error, BadFile):
        return error
    if isinstance(error, FileNotFoundError):
        return BadFile("missing", f"{path} is missing.")
    if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
        return BadFile("unreadable", f"{path} is too large to be decoded safely: {error}.")
    if isinstance(error, UnidentifiedImageError):
        return BadFile("unreadable", f"{path} is not an image that can be read.")
    return BadFile("unreadable", f"{path} cannot be read: {error}. The file may be truncated or damaged.")


READ_ERRORS = (OSError, ValueError, SyntaxError, Image.DecompressionBombError, Image.DecompressionBombWarning)


def read_image(path: Path) -> np.ndarray:
    """uint8 RGB, height x width x 3."""
    try:
        with _open(path) as image:
            return np.asarray(image.convert("RGB"))
    except READ_ERRORS as error:
        raise _fail(path, error) from error


def read_mask(path: Path) -> np.ndarray:
    """uint8 ids, height x width: the indices of a palette or grey PNG, never its colours."""
    try:
        with _open(path) as image:
            if image.mode not in ("P", "L"):
                raise BadFile(
                    "unreadable",
                    f"{path} is a mask of mode {image.mode}; masks are 8-bit palette or grey images.",
                )
            return np.asarray(image)
    except READ_ERRORS as error:
        raise _fail(path, error) from error


def read_grey(path: Path) -> np.ndarray:
    """uint8 grey values, height x width."""
    check_grey(path)
    try:
        with _open(path) as image:
            return np.asarray(image.convert("L"))
    except READ_ERRORS as error:
        raise _fail(path, error) from error


def check_grey(path: Path) -> None:
    """Whether a file is a grey image, by its header alone."""
    try:
        with _open(path) as image:
            mode = image.mode
    except READ_ERRORS as error:
        raise _fail(path, error) from error
    if mode not in ("L", "1"):
        raise UserError(f"{path} is of mode {mode}; it should be an 8-bit grey image.")


def check_image(path: Path) -> tuple[int, int]:
    """Width and height of an image whose whole file can be decoded."""
    try:
        with _open(path) as image:
            size = image.size
            image.draft(
                "RGB", (size[0] // 8 or 1, size[1] // 8 or 1)
            )  # JPEG: the whole stream, an eighth of the pixels
            image.load()
            return size
    except READ_ERRORS as error:
        raise _fail(path, error) from error


def check_pair(
    image_path: Path, mask_path: Path, classes: ClassTable, class_ids: np.ndarray | None = None
) -> Content:
    """What is in a mask; raises if image or mask cannot be used for training.

    `class_ids` gives the class id of each of 256 mask values, -1 for a value that has no meaning.
    """
    if not mask_path.is_file():
        raise BadFile("missing", f"{image_path} has no mask: {mask_path} is missing.")
    width, height = check_image(image_path)
    names = str(mask_path), str(image_path)
    return check_mask(read_mask(mask_path), (height, width), classes, *names, class_ids)


def check_mask(
    mask: np.ndarray,
    size: tuple[int, int],
    classes: ClassTable,
    mask_name: str,
    image_name: str,
    class_ids: np.ndarray | None = None,
) -> Content:
    """What is in a mask that fits its image (height, width) and its classes."""
    if mask.shape != size:
        raise BadFile(
            "wrong size",
            f"{mask_name} is {mask.shape[1]} x {mask.shape[0]} pixels,"
            f" but its image {image_name} is {size[1]} x {size[0]}.",
        )
    values = np.bincount(mask.ravel(), minlength=256)
    if class_ids is None:
        unknown = set(np.flatnonzero(values).tolist()) - classes.known
    else:
        unknown = set(np.flatnonzero((values > 0) & (class_ids < 0)).tolist())
    if unknown:
        raise BadFile(
            "unknown id",
            f"{mask_name} holds the value {min(unknown)}, which is no class id of {classes.dataset}"
            f" (classes {min(classes.ids)} to {max(classes.ids)}{_special(classes)}).",
        )
    if class_ids is None:
        return Content(size, values)
    known = class_ids >= 0
    return Content(size, np.bincount(class_ids[known], weights=values[known], minlength=256).astype(np.int64))


def _special(classes: ClassTable) -> str:
    background = "" if classes.background is None else f", background {classes.background}"
    void = f", void {', '.join(map(str, classes.void))}" if classes.void else ""
    return background + void
