"""The quick way to read the kind of mask that is most common: an 8-bit palette PNG without row filters."""

from __future__ import annotations

import struct
import zlib

import numpy as np

START = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
PLAIN = bytes((8, 3, 0, 0, 0))
"""bit depth, palette, and the only compression, filter and (no) interlace methods of this kind"""
KNOWN = frozenset({b"IHDR", b"PLTE", b"tRNS", b"gAMA", b"sRGB", b"cHRM", b"pHYs", b"bKGD", b"tIME", b"tEXt"})
"""chunks that change nothing: EXIF data may turn an image, an animation has more than one"""


def palette_ids(content: bytes, most: int | None) -> np.ndarray | None:
    """The indices of a plain palette PNG of at most so many pixels; None for all else, also if damaged.

    Takes half of PIL's time, most of it without Python's lock. What it leaves, PIL reads or refuses.
    """
    if not content.startswith(START) or content[24:29] != PLAIN:
        return None
    width, height = struct.unpack_from(">II", content, 16)
    if not width or not height or (most is not None and width * height > most):
        return None
    stream = _stream(content)
    if stream is None:
        return None
    unpack, size = zlib.decompressobj(), height * (width + 1)
    try:
        rows = unpack.decompress(stream, size)
        if len(rows) != size or unpack.decompress(unpack.unconsumed_tail, 1) or not unpack.eof:
            return None
    except zlib.error:
        return None
    table = np.frombuffer(rows, np.uint8).reshape(height, width + 1)  # each row follows its filter
    return None if table[:, 0].any() else np.ascontiguousarray(table[:, 1:])


def _stream(content: bytes) -> bytes | None:
    """The compressed pixels, if all chunks are whole and known."""
    parts, place, palette = [], 8, False
    while place + 12 <= len(content):
        length, kind = struct.unpack_from(">I4s", content, place)
        body = content[place + 4 : place + 8 + length]
        if content[place + 8 + length : place + 12 + length] != zlib.crc32(body).to_bytes(4, "big"):
            return None
        if kind == b"IEND":
            return b"".join(parts) if palette else None
        if kind == b"IDAT":
            parts.append(body[4:])
        elif kind not in KNOWN:
            return None
        palette = palette or kind == b"PLTE"
        place += 12 + length
    return None
