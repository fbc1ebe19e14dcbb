"""Rows of a TIFF that is too large to be decoded as a whole: strip by strip, or tile by tile.

PIL decodes a compressed TIFF in one piece. So each strip or tile is handed to PIL as a small TIFF of its own,
with the tags that say how its pixels are stored: every compression and kind that PIL reads works, and pixels
become RGB by the same code as those of any other image.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from PIL import Image, TiffImagePlugin
from PIL.TiffImagePlugin import ImageFileDirectory_v2

from segue.core.errors import UserError
from segue.core.ordinary import open_ordinary
from segue.data.image_files import ORIENTATION, QUIET, BadFile, opened
from segue.data.images import rgb_pixels

MOST_PIXELS, LONGEST = 2**32, 2**17
"""pixels of the largest image (65,536 x 65,536), and of the longest side: whole rows are held in memory"""
WIDTH, HEIGHT, STRIPS, ROWS_PER_STRIP, STRIP_BYTES = 256, 257, 273, 278, 279
TILE_WIDTH, TILE_HEIGHT, TILES, TILE_BYTES, PLANES = 322, 323, 324, 325, 284
COMPRESSION = 259
KEPT = (258, 259, 262, 266, 277, 284, 317, 320, 338, 339, 347, 530, 532)
"""tags that say how pixels are stored: bits, compression, colours, predictor, palette, alpha, JPEG tables"""
HEADS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
SEGMENT_BYTES = 2**28
"""bytes of the largest strip or tile"""
PART_BYTES = 2**24
"""bytes of a part of a strip that is not compressed"""


def large_tiff(path: Path) -> bool:
    """Whether a file is a TIFF with more pixels than are decoded at once; by its header alone."""
    try:
        with open_ordinary(path) as file:
            if file.read(4) not in HEADS:
                return False
            file.seek(0)
            with QUIET:
                width, height = TiffImagePlugin.TiffImageFile(file).size
    except Exception:  # damaged: whoever reads it says so
        return False
    limit = Image.MAX_IMAGE_PIXELS
    return limit is not None and width * height > limit


class TiffRows:
    """An open TIFF whose rows can be asked for."""

    def __init__(self, file: IO[bytes], path: Path, bits: int) -> None:
        self._file, self._path, self._bits = file, path, bits
        image = TiffImagePlugin.TiffImageFile(file)
        tags: Any = image.tag_v2
        width, height = image.size
        if width * height > MOST_PIXELS or max(width, height) > LONGEST:
            raise BadFile("unreadable", f"{path} is too large to be read: {width} x {height} pixels.")
        if getattr(image, "n_frames", 1) > 1:
            raise BadFile("unreadable", f"{path} holds {image.n_frames} pictures; one is needed.")
        if tags.get(PLANES, 1) != 1:
            raise self._refusal("its colours lie in separate planes")
        if tags.get(ORIENTATION, 1) != 1:
            raise self._refusal("it is stored turned")
        self.size = (height, width)
        self._tiled = TILES in tags
        names = (TILES, TILE_BYTES) if self._tiled else (STRIPS, STRIP_BYTES)
        self._offsets, self._bytes = (tuple(tags[name]) for name in names)
        self._segment = (tags[TILE_HEIGHT], tags[TILE_WIDTH]) if self._tiled else self._strip(tags)
        self._tags = {tag: (tags[tag], tags.tagtype[tag]) for tag in KEPT if tag in tags}
        self._order = tags.prefix
        self._check()

    def rows(self, top: int, bottom: int) -> np.ndarray:
        """uint8 RGB, rows x width x 3."""
        height, width = self.size
        tall, wide = self._segment
        across = -(-width // wide)
        found = np.empty((bottom - top, width, 3), dtype=np.uint8)
        for line in range(top // tall, -(-bottom // tall)):
            first, last = max(top, line * tall), min(bottom, line * tall + tall)
            stored = tall if self._tiled else min(tall, height - line * tall)  # the last strip is shorter
            for column in range(across):
                left = column * wide
                pixels = self._decode(line * across + column, stored)
                part = pixels[first - line * tall : last - line * tall, : width - left]
                found[first - top : last - top, left : left + wide] = part
        return found

    def _strip(self, tags: Any) -> tuple[int, int]:
        """Rows and columns of a strip; one that holds all pixels, not compressed, is taken in parts."""
        height, width = self.size
        rows = min(tags.get(ROWS_PER_STRIP, height), height)
        if rows == height and tags.get(COMPRESSION, 1) == 1:
            line, rest = divmod(self._bytes[0], height)
            rows = max(1, min(height, PART_BYTES // max(1, line)))
            starts = range(0, height, rows)
            if not rest:
                self._offsets = tuple(self._offsets[0] + line * start for start in starts)
                self._bytes = tuple(line * min(rows, height - start) for start in starts)
        return rows, width

    def _check(self) -> None:
        """Sizes first: what a stranger's header says decides how much memory is taken."""
        (height, width), (tall, wide) = self.size, self._segment
        if min(tall, wide) < 1 or tall * wide > (Image.MAX_IMAGE_PIXELS or MOST_PIXELS):
            raise self._refusal(f"it is stored in pieces of {wide} x {tall} pixels")
        if len(self._offsets) != -(-height // tall) * -(-width // wide) or len(self._bytes) != len(
            self._offsets
        ):
            raise BadFile("unreadable", f"{self._path} is damaged: its pieces do not cover its pixels.")
        if max(self._bytes) > SEGMENT_BYTES:
            raise self._refusal(f"one of its pieces has {max(self._bytes) / 2**20:.0f} MiB")

    def _decode(self, number: int, rows: int) -> np.ndarray:
        """One strip or tile as a small TIFF with one strip."""
        self._file.seek(self._offsets[number])
        data = self._file.read(self._bytes[number])
        if len(data) < self._bytes[number]:
            raise BadFile("unreadable", f"{self._path} is truncated: one of its strips or tiles is cut off.")
        directory: Any = ImageFileDirectory_v2(prefix=self._order)
        for tag, (value, kind) in self._tags.items():
            directory.tagtype[tag] = kind
            directory[tag] = value
        width = self._segment[1]
        directory[WIDTH], directory[HEIGHT], directory[ROWS_PER_STRIP] = width, rows, rows
        directory[STRIPS], directory[STRIP_BYTES] = 0, len(data)  # PIL moves the place behind the tags
        small = io.BytesIO()
        directory.save(small)
        small.write(data)
        with opened(self._path, small.getvalue()) as image:
            return rgb_pixels(image, str(self._path), self._bits)

    def _refusal(self, why: str) -> BadFile:
        return BadFile(
            "unreadable",
            f"{self._path} is too large to be decoded as a whole, and {why}:"
            " save it upright, as a TIFF with tiles or strips.",
        )


@contextmanager
def tiff_rows(path: Path, bits: int = 16) -> Iterator[TiffRows]:
    """The rows of a large TIFF; whatever goes wrong until it is left is a `BadFile`."""
    try:
        with QUIET, open_ordinary(path) as file:
            yield TiffRows(file, path, bits)
    except UserError:
        raise
    except Exception as error:  # PIL has no list of what it raises
        reason = f"the tag {error} is missing" if isinstance(error, KeyError) else error
        raise BadFile("unreadable", f"{path} cannot be read: {reason}. The file may be damaged.") from error
