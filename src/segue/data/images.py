"""Reading image and mask files, with a sentence for whatever can be wrong with them."""

from __future__ import annotations

import threading
import warnings
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from segue.core.classes import ClassTable
from segue.core.errors import UserError

_FILTERS = threading.Lock()
"""warning filters belong to the whole process: without it threads would undo each other's"""


def _open(path: Path) -> Image.Image:
    with _FILTERS, warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        return Image.open(path)


def _fail(path: Path, error: Exception) -> UserError:
    if isinstance(error, FileNotFoundError):
        return UserError(f"{path} is missing.")
    if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
        return UserError(f"{path} is too large to be decoded safely: {error}.")
    if isinstance(error, UnidentifiedImageError):
        return UserError(f"{path} is not an image that can be read.")
    return UserError(f"{path} cannot be read: {error}. The file may be truncated or damaged.")


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
                raise UserError(
                    f"{path} is a mask of mode {image.mode}; masks are 8-bit palette or grey images."
                )
            return np.asarray(image)
    except READ_ERRORS as error:
        if isinstance(error, UserError):
            raise
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


def check_pair(image_path: Path, mask_path: Path, classes: ClassTable) -> np.ndarray:
    """The ids present in a mask (256 bools); raises if image or mask cannot be used for training."""
    if not mask_path.is_file():
        raise UserError(f"{image_path} has no mask: {mask_path} is missing.")
    width, height = check_image(image_path)
    return check_mask(read_mask(mask_path), (height, width), classes, str(mask_path), str(image_path))


def check_mask(
    mask: np.ndarray, size: tuple[int, int], classes: ClassTable, mask_name: str, image_name: str
) -> np.ndarray:
    """The ids present in a mask (256 bools) that fits its image (height, width) and its classes."""
    if mask.shape != size:
        raise UserError(
            f"{mask_name} is {mask.shape[1]} x {mask.shape[0]} pixels,"
            f" but its image {image_name} is {size[1]} x {size[0]}."
        )
    present = np.bincount(mask.ravel(), minlength=256) > 0
    unknown = sorted(set(np.flatnonzero(present).tolist()) - classes.known)
    if unknown:
        raise UserError(
            f"{mask_name} holds the value {unknown[0]}, which is no class id of {classes.dataset}"
            f" (classes {min(classes.ids)} to {max(classes.ids)}{_special(classes)})."
        )
    return present


def _special(classes: ClassTable) -> str:
    background = "" if classes.background is None else f", background {classes.background}"
    void = f", void {', '.join(map(str, classes.void))}" if classes.void else ""
    return background + void
