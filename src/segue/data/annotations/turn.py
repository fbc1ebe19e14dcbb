"""An image on disk, whether its EXIF turns it, and which way round its annotation was drawn."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from segue.core.errors import UserError
from segue.data.annotations.base import Drawing
from segue.data.annotations.draw import Drawn, draw
from segue.data.image_files import SIDEWAYS, TURNS, opened, orientation
from segue.data.images import read_image


@dataclass(frozen=True)
class Photo:
    """An image, upright."""

    pixels: np.ndarray
    orientation: int
    """orientation number of EXIF; 1: stored upright"""
    plain_jpeg: bool
    """an 8-bit RGB JPEG that is stored upright: its file can be used as it is"""
    deep: bool
    """16-bit grey before it was read"""

    @property
    def size(self) -> tuple[int, int]:
        return self.pixels.shape[1], self.pixels.shape[0]

    @property
    def stored_size(self) -> tuple[int, int]:
        return self.size[::-1] if self.orientation in SIDEWAYS else self.size


def read_photo(path: Path, bits: int = 16) -> Photo:
    pixels = read_image(path, bits)
    with opened(path) as image:
        turn = orientation(image)  # before it is loaded: loading turns a TIFF
        plain = image.format in ("JPEG", "MPO") and image.mode == "RGB" and turn == 1
        return Photo(pixels, turn, plain, deep=image.mode.startswith("I"))


def make_mask(drawing: Drawing, classes: tuple[str, ...], photo: Photo) -> Drawn:
    """The mask, upright.

    An annotation refers to what the annotator saw. If its size is that of the upright image, it is drawn
    there; otherwise, if it fits the stored pixels, it is drawn on those and turned with the image.
    """
    ready = None if drawing.mask is None else drawing.mask.read()
    stated = drawing.size if ready is None else (ready.shape[1], ready.shape[0])
    stored = stated == photo.stored_size and stated != photo.size
    if stated not in (None, photo.size) and not stored:
        width, height = photo.size
        assert stated is not None
        raise UserError(
            f"{drawing.file}: {drawing.name} is {width} x {height} pixels, but the annotation is for"
            f" {stated[0]} x {stated[1]}. It belongs to another version of the image."
        )
    if ready is None:
        drawn = draw(drawing, classes, photo.stored_size if stored else photo.size)
    else:
        drawn = Drawn(ready, empty=0, hidden=0)
    if stored:
        return drawn._replace(mask=np.ascontiguousarray(TURNS[photo.orientation](drawn.mask)))
    return drawn
