"""Label Studio's brush masks: run lengths of red, green, blue and alpha, packed bit by bit.

A stream of bits, highest first: 32 for the count of numbers (4 per pixel, row by row), 5 for the bits of a
number less one, 4 for each of four lengths less one; then records. A record is a bit (1: one number that is
repeated, 0: as many numbers), 2 bits that choose one of the four lengths, a count less one in so many bits,
and the number or numbers. It is the format `rle-pack` of thi.ng/umbrella. Alpha says whether a pixel is in.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

import numpy as np
from PIL import Image

from segue.core.errors import UserError

NUMBER_BITS = 8
LENGTHS = (4, 8, 12, 16)
"""bits of a count that are written, least first"""
MOST = 2 ** LENGTHS[-1]
"""largest count of a record"""
HEAD_BITS = 32 + 5 + 4 * 4
HALF = 128
"""alpha from which on a pixel belongs to the region"""


def pack(region: np.ndarray) -> list[int]:
    """The bytes of a mask, H x W of bool."""
    flat = region.reshape(-1)
    edges = [0, *(np.flatnonzero(flat[1:] != flat[:-1]) + 1).tolist(), len(flat)]
    head = f"{4 * len(flat):032b}{NUMBER_BITS - 1:05b}" + "".join(f"{length - 1:04b}" for length in LENGTHS)
    records = []
    for start, stop in pairwise(edges):
        value = f"{255 * int(flat[start]):08b}"
        full, rest = divmod(4 * (stop - start), MOST)
        records += [_record(MOST, value)] * full + ([_record(rest, value)] if rest else [])
    bits = "".join([head, *records]).encode()
    return np.packbits(np.frombuffer(bits, dtype=np.uint8) - ord("0")).tolist()


@lru_cache(maxsize=4096)
def _record(count: int, value: str) -> str:
    place = next(place for place, length in enumerate(LENGTHS) if count <= 2**length)
    return f"1{place:02b}{count - 1:0{LENGTHS[place]}b}{value}"


def unpack(packed: object, size: tuple[int, int], where: str) -> np.ndarray:
    """The mask of these bytes, H x W of bool; a sentence if they are no such mask of this size."""
    height, width = size
    if height * width > (Image.MAX_IMAGE_PIXELS or 2**31):
        raise UserError(f"{where}: {width} x {height} pixels are more than are read safely.")
    try:
        raw = np.array(packed, dtype=np.int64)
        if raw.ndim != 1 or not isinstance(packed, list) or raw.min() < 0 or raw.max() > 255:
            raise ValueError("it should be a list of bytes")
        numbers = _numbers(raw.astype(np.uint8), 4 * height * width)
    except (ValueError, TypeError, OverflowError) as error:
        raise UserError(
            f"{where}: the brush mask is no mask of {width} x {height} pixels: {error}. Export it again."
        ) from error
    return (numbers[3::4] >= HALF).reshape(size)


def _numbers(raw: np.ndarray, expected: int) -> np.ndarray:
    """All numbers of a stream."""
    bits = (np.unpackbits(raw) + ord("0")).tobytes().decode()
    if len(bits) < HEAD_BITS:
        raise ValueError("it is cut off")
    count, wide = int(bits[:32], 2), int(bits[32:37], 2) + 1
    if count != expected:
        raise ValueError(f"it holds {count} numbers and not {expected}")
    if wide != NUMBER_BITS:
        raise ValueError(f"its numbers have {wide} bits")
    lengths = [int(bits[start : start + 4], 2) + 1 for start in range(37, HEAD_BITS, 4)]
    numbers, done, place = np.empty(count, dtype=np.uint8), 0, HEAD_BITS
    while done < count:
        many = place + 3 + lengths[int(bits[place + 1 : place + 3], 2)]  # int("") tells of a stream cut off
        stop = done + int(bits[place + 3 : many], 2) + 1
        if bits[place] == "1":
            place = many + wide
            numbers[done:stop] = int(bits[many:place], 2)
        else:
            place = many + wide * (stop - done)
            literal = np.frombuffer(bits[many:place].encode(), dtype=np.uint8) - ord("0")
            numbers[done:stop] = np.packbits(literal)
        if stop > count or place > len(bits):
            raise ValueError("it is cut off or damaged")
        done = stop
    return numbers
