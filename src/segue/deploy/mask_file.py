"""Masks as PNG files that are written strip by strip: ids with a palette, which any viewer shows in colours.

PIL encodes a picture as a whole; a mask of 20,000 x 20,000 pixels would have to be in memory.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np

from segue.core.classes import Colour
from segue.core.palette import flat_palette
from segue.core.records import atomic_file

SIGNATURE = b"\x89PNG\r\n\x1a\n"
GREY, PALETTE = 0, 3
"""colour types of PNG"""
LEVEL = 6
"""effort of zlib"""


class MaskFile:
    """An open PNG file that takes rows of ids from top to bottom."""

    def __init__(self, file: IO[bytes], size: tuple[int, int], colours: Sequence[Colour]) -> None:
        """`size` is height, width. Beyond 256 classes values are 16-bit grey: a palette has no more."""
        self._file, self._deep = file, len(colours) > 256
        self._compress = zlib.compressobj(LEVEL)
        bits, kind = (16, GREY) if self._deep else (8, PALETTE)
        file.write(SIGNATURE)
        self._chunk(b"IHDR", struct.pack(">IIBBBBB", size[1], size[0], bits, kind, 0, 0, 0))
        if not self._deep:
            self._chunk(b"PLTE", bytes(flat_palette(colours[1:])))

    def write(self, ids: np.ndarray) -> None:
        """The next rows."""
        values = ids.astype(">u2" if self._deep else np.uint8, copy=False)
        raw = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1)
        rows = np.zeros((len(raw), raw.shape[1] + 1), dtype=np.uint8)  # each row begins with its filter: none
        rows[:, 1:] = raw
        if data := self._compress.compress(rows.data):
            self._chunk(b"IDAT", data)

    def close(self) -> None:
        self._chunk(b"IDAT", self._compress.flush())
        self._chunk(b"IEND", b"")

    def _chunk(self, kind: bytes, data: bytes) -> None:
        check = zlib.crc32(data, zlib.crc32(kind))
        self._file.write(struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check))


@contextmanager
def mask_file(path: Path, root: Path, size: tuple[int, int], colours: Sequence[Colour]) -> Iterator[MaskFile]:
    """A mask below `root`, written whole or not at all."""
    with atomic_file(path, root) as file:
        mask = MaskFile(file, size, colours)
        yield mask
        mask.close()
