"""Image files that PIL cannot write: TIFFs in tiles, and headers that promise more than there is."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL.TiffImagePlugin import ImageFileDirectory_v2


def write_tiled_tiff(
    path: Path, rows: Callable[[int, int], np.ndarray], size: tuple[int, int], tile: int
) -> None:
    """RGB in deflated square tiles; `rows(top, bottom)` gives the pixels, so that they need no memory."""
    height, width = size
    offsets, lengths = [], []
    with open(path, "wb") as file:
        file.write(b"II*\0" + bytes(4))
        for top in range(0, height, tile):
            band = np.zeros((tile, -(-width // tile) * tile, 3), dtype=np.uint8)
            found = rows(top, min(top + tile, height))
            band[: len(found), :width] = found
            for left in range(0, width, tile):
                data = zlib.compress(np.ascontiguousarray(band[:, left : left + tile]), 1)
                offsets.append(file.tell())
                lengths.append(len(data))
                file.write(data)
        file.write(bytes(file.tell() % 2))
        place = file.tell()
        tags = ImageFileDirectory_v2(prefix=b"II")
        for tag, value in {256: width, 257: height, 258: (8, 8, 8), 259: 8, 262: 2, 277: 3, 284: 1}.items():
            tags[tag] = value
        tags[322], tags[323], tags[324], tags[325] = tile, tile, tuple(offsets), tuple(lengths)
        file.write(tags.tobytes(place))
        file.seek(4)
        file.write(struct.pack("<I", place))


def png_bomb(width: int, height: int) -> bytes:
    """A PNG whose header promises so many pixels and which holds none."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IDAT", zlib.compress(bytes(1000)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + body + chunk(b"IEND", b"")
