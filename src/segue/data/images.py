"""Images and masks as arrays, from files of many kinds, and checks of what they hold.

Images: 8 and 16 bit, grey, colour, palette, CMYK, 1 bit; always turned upright as EXIF data asks, masks too.
Transparency is left out: the colours under it stay, as most loaders have it. Of 16-bit colour PIL gives the
upper 8 bits; 16-bit grey is scaled. Masks hold ids: grey values or palette indices, never colours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from segue.core.classes import ClassTable, voc_palette
from segue.core.errors import UserError
from segue.data.image_files import (
    READ_ERRORS,
    SIDEWAYS,
    BadFile,
    Problem,
    opened,
    orientation,
    raw_mode,
    upright,
)

__all__ = [
    "READ_ERRORS",
    "BadFile",
    "Content",
    "Problem",
    "check_grey",
    "check_image",
    "check_mask",
    "check_pair",
    "count_values",
    "mask_picture",
    "read_grey",
    "read_image",
    "read_mask",
    "rgb_pixels",
]

EIGHT_BIT = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr")
THINNEST = 100
"""length by width; a test brings the shorter side to the crop's, so that a thread of pixels would be huge"""
LOSSY = ("JPEG", "MPO", "WEBP")
LOSSY_TIFF = ("jpeg", "tiff_jpeg", "webp")
SAMPLE, FEW_VALUES = 131, 10
"""every so many pixels are looked at first; with more values than that counting is quicker"""


@dataclass(frozen=True)
class Content:
    """What a look at an image and its mask has found."""

    size: tuple[int, int]
    """height, width"""
    pixels: np.ndarray
    """256 numbers: how many pixels have each class id"""
    peak: int = 0
    """the largest value of a 16-bit grey image"""


class _Look(NamedTuple):
    width: int
    height: int
    turned: bool
    """stored lying on its side"""
    peak: int


def read_image(path: Path, bits: int = 16) -> np.ndarray:
    """uint8 RGB, height x width x 3. `bits` is how many of a 16-bit image are used: 12 makes 4095 white."""
    with opened(path) as image:
        return rgb_pixels(image, str(path), bits)


def rgb_pixels(image: Image.Image, name: str, bits: int = 16) -> np.ndarray:
    """The pixels of an open image, upright, as `read_image` gives them; `name` stands in messages."""
    _check_kind(image, name, bits)
    image.load()
    if _is_deep_grey(image):
        return np.repeat(upright(image, _scale(bits)[np.asarray(image)])[..., None], 3, axis=2)
    opaque = image
    if "transparency" in image.info:
        opaque = image.copy()  # the caller's stays as it is
        del opaque.info["transparency"]
    return upright(image, np.asarray(opaque.convert("RGB")))


def mask_picture(ids: np.ndarray, palette: Sequence[int] | None = None) -> Image.Image:
    """Ids as a picture with a palette, that of PASCAL VOC unless said. uint16 ids have none: grey values."""
    picture = Image.fromarray(np.ascontiguousarray(ids))
    if ids.dtype == np.uint8:
        picture.putpalette(voc_palette() if palette is None else palette)
    return picture


def check_image(path: Path, bits: int = 16) -> tuple[int, int]:
    """Width and height of an image, turned upright, whose whole file can be decoded."""
    return _look(path, bits)[:2]


def _look(path: Path, bits: int = 16) -> _Look:
    """An image as it is seen, without all of its pixels."""
    with opened(path) as image:
        _check_kind(image, path, bits)
        width, height = image.size
        # JPEG: the whole stream, but an eighth of the pixels
        reduced = image.draft("RGB", (width // 8 or 1, height // 8 or 1)) is not None
        image.load()
        if not reduced:
            width, height = image.size
        peak = int(np.asarray(image).max()) if _is_deep_grey(image) else 0
        turned = orientation(image) in SIDEWAYS
        return _Look(*((height, width) if turned else (width, height)), turned, peak)


def _check_kind(image: Image.Image, path: Path | str, bits: int) -> None:
    """Whether an image can become 8-bit RGB without a guess; before it is loaded."""
    if not 8 <= bits <= 16:
        raise UserError(f"An image cannot have {bits} bits: 8 to 16 are possible.")
    stored = raw_mode(image)
    if _is_deep_grey(image):
        return
    if image.mode not in EIGHT_BIT:
        raise BadFile(
            "unreadable",
            f"{path} is an image of mode {image.mode} ({stored}), whose range of values is unknown;"
            " images have 8 or 16 bits, without sign. Convert it.",
        )
    if ";16" in stored and bits != 16:
        raise BadFile(
            "unreadable",
            f"{path} has colours of 16 bits, of which only the upper 8 can be read:"
            f" {bits} bits are for grey images. Convert it.",
        )


def _is_deep_grey(image: Image.Image) -> bool:
    """16-bit grey; "I" is what PIL before 11 made of a 16-bit PNG."""
    return image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PNG")


@lru_cache
def _scale(bits: int) -> np.ndarray:
    """The 8-bit value of each 16-bit one, rounded; what needs more than `bits` bits is white."""
    top = 2**bits - 1
    return ((np.minimum(np.arange(2**16), top) * 255 + top // 2) // top).astype(np.uint8)


def read_mask(path: Path) -> np.ndarray:
    """uint8 ids, height x width: the indices of a palette, or grey values, never colours."""
    with opened(path) as image:
        compression = image.info.get("compression")
        if image.format in LOSSY or compression in LOSSY_TIFF:
            raise BadFile(
                "unreadable",
                f"{path} is a mask in a lossy format ({image.format}), where edges hold values that"
                " nobody drew. Masks are PNG, TIFF, BMP or GIF files.",
            )
        stored = raw_mode(image)
        image.load()
        return upright(image, _ids(image, stored, path))


def _ids(image: Image.Image, stored: str, path: Path) -> np.ndarray:
    if image.mode in ("P", "L", "1"):
        ids = np.asarray(image).astype(np.uint8, copy=False)
        # PIL stretches grey values of 2 and 4 bits to 8: back to what the file holds
        steps = {"L;2": 85, "L;4": 17}.get(stored[:3], 1)
        return ids if steps == 1 else ids // np.uint8(steps)
    if _is_deep_grey(image):
        values = np.asarray(image)
        if values.max() > 255:
            raise BadFile("unknown id", f"{path} holds the value {values.max()}; ids are at most 255.")
        return values.astype(np.uint8)
    hint = " Masks in colours: segue data convert, with a labelmap.txt." if "RGB" in image.mode else ""
    raise BadFile(
        "unreadable",
        f"{path} is a mask of mode {image.mode}; masks are palette or grey images of 8 or 16 bits.{hint}",
    )


def read_grey(path: Path) -> np.ndarray:
    """uint8 grey values, height x width."""
    with opened(path) as image:
        _check_grey(image, path)
        image.load()
        return upright(image, np.asarray(image.convert("L")))


def check_grey(path: Path) -> None:
    """Whether a file is a grey image, by its header alone."""
    with opened(path) as image:
        _check_grey(image, path)


def _check_grey(image: Image.Image, path: Path) -> None:
    if image.mode not in ("L", "1"):
        raise BadFile("unreadable", f"{path} is of mode {image.mode}; it should be an 8-bit grey image.")


def check_pair(
    image_path: Path,
    mask_path: Path,
    classes: ClassTable,
    class_ids: np.ndarray | None = None,
    bits: int = 16,
) -> Content:
    """What is in a mask; raises if image or mask cannot be used for training.

    `class_ids` gives the class id of each of 256 mask values, -1 for a value that has no meaning.
    """
    try:
        mask = read_mask(mask_path)
    except BadFile as error:
        if error.kind != "missing":
            check_image(image_path, bits)  # a bad image is named first, whatever its mask is like
            raise
        raise BadFile("missing", f"{image_path} has no mask: {mask_path} is missing.") from error
    width, height, turned, peak = _look(image_path, bits)
    if max(width, height) > THINNEST * min(width, height):
        raise BadFile("wrong size", f"{image_path} is {width} x {height} pixels: too thin for a square crop.")
    if turned and mask.shape == (width, height):
        raise BadFile(
            "wrong size",
            f"{mask_path} is {height} x {width} pixels: it fits its image {image_path} as that is stored,"
            f" but the image's EXIF data turn it to {width} x {height}."
            " Turn the mask, or store the image upright.",
        )
    content = check_mask(mask, (height, width), classes, str(mask_path), str(image_path), class_ids)
    return replace(content, peak=peak)


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
    values = count_values(mask)
    allowed = classes.known if class_ids is None else set(np.flatnonzero(class_ids >= 0).tolist())
    unknown = [value for value in np.flatnonzero(values).tolist() if value not in allowed]
    if unknown:
        raise BadFile(
            "unknown id",
            f"{mask_name} holds the value {unknown[0]}, which is no class id of {classes.dataset}"
            f" (classes {min(classes.ids)} to {max(classes.ids)}{_special(classes)}).",
        )
    if class_ids is None:
        return Content(size, values)
    known = class_ids >= 0
    return Content(size, np.bincount(class_ids[known], weights=values[known], minlength=256).astype(np.int64))


def count_values(mask: np.ndarray) -> np.ndarray:
    """How many pixels of a uint8 mask have each of 256 values.

    A mask holds few values, and a sample nearly always shows them all: to compare the mask with each takes
    less than half the time of `np.bincount`, which is left for masks where the sample has missed one.
    """
    flat = mask.reshape(-1)
    counts, equal = np.zeros(256, dtype=np.int64), np.empty(flat.size, dtype=bool)
    values = set(flat[::SAMPLE].tobytes())
    if len(values) <= FEW_VALUES:
        for value in values:
            counts[value] = np.count_nonzero(np.equal(flat, value, out=equal))
    return counts if counts.sum() == flat.size else np.bincount(flat, minlength=256)


def _special(classes: ClassTable) -> str:
    background = "" if classes.background is None else f", background {classes.background}"
    void = f", void {', '.join(map(str, classes.void))}" if classes.void else ""
    return background + void
