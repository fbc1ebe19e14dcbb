"""COCO's run-length masks, checked and decoded with numpy: no foreign string reaches C code.

The compressed form writes each count in characters of five bits (48 + bits), lowest first; 32 means that more
follow, the highest of the five is the sign. From the fourth count on, the difference to the count two places
earlier is written.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from PIL import Image

from segue.core.errors import UserError
from segue.data.annotations.base import Runs, show

MOST_CHARACTERS = 7
"""most characters of one count: 35 bits are more than any picture needs"""


def read_runs(segmentation: dict[str, Any], where: str) -> Runs:
    """{"size": [height, width], "counts": list or string} of a COCO file."""
    size = segmentation.get("size")
    if (
        not isinstance(size, list)
        or len(size) != 2
        or any(type(side) is not int or side < 1 for side in size)
        or size[0] * size[1] > (Image.MAX_IMAGE_PIXELS or 2**31)
    ):
        raise UserError(
            f"{where}: the size of a run-length mask should be [height, width], not {show(size)}."
        )
    height, width = size
    counts = segmentation.get("counts")
    if isinstance(counts, str):
        numbers = decode_counts(counts, where)
    elif isinstance(counts, list):
        if any(type(count) is not int or not 0 <= count <= height * width for count in counts):
            raise UserError(f"{where}: the counts of a run-length mask are whole numbers from 0 to its size.")
        numbers = np.array(counts, dtype=np.int64)
    else:
        raise UserError(f"{where}: the counts of a run-length mask are a list or text, not {show(counts)}.")
    total = height * width  # counts are bounded first: a sum of large ones could wrap around to it
    if ((numbers < 0) | (numbers > total)).any() or numbers.sum() != total:
        raise UserError(
            f"{where}: the counts of a run-length mask do not add up to its {width} x {height} pixels."
            " The mask is cut off or damaged; export it again."
        )
    return Runs(height, width, numbers)


def runs_of(region: np.ndarray) -> Runs:
    """The runs of a mask, H x W of bool."""
    flat = np.concatenate([[False], region.T.reshape(-1)])
    changes = np.flatnonzero(flat[1:] != flat[:-1])
    return Runs(*region.shape, np.diff([0, *changes, region.size]))


def decode_counts(text: str | bytes, where: str) -> np.ndarray:
    """The counts in a compressed string, as int64."""
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    codes = np.frombuffer(raw, dtype=np.uint8).astype(np.int64) - 48
    if len(codes) == 0:
        return codes
    goes_on = (codes & 32) > 0
    last = np.flatnonzero(~goes_on)
    if (codes < 0).any() or (codes > 63).any() or goes_on[-1]:
        raise UserError(f"{where}: the run-length text {show(text)} is cut off or damaged; export it again.")
    first = np.concatenate([[0], last[:-1] + 1])
    length = last - first + 1
    if length.max() > MOST_CHARACTERS:
        raise UserError(f"{where}: the run-length text {show(text)} holds a count that is too large.")
    place = np.arange(len(codes)) - np.repeat(first, length)
    numbers = np.add.reduceat((codes & 31) << (5 * place), first)
    numbers -= ((codes[last] & 16) > 0) * (np.int64(1) << (5 * length))
    numbers[1::2] = np.cumsum(numbers[1::2])
    numbers[2::2] = np.cumsum(numbers[2::2])
    return numbers


def paint_runs(canvas: np.ndarray, runs: Runs, value: int) -> None:
    """Set the pixels of a region; `canvas` lies in memory column by column."""
    flat = canvas.T.reshape(-1)
    assert np.shares_memory(flat, canvas), "a canvas is in column order"
    start = int(runs.counts[:1].sum())
    lengths = runs.counts[1:]
    inside = np.repeat(np.arange(len(lengths)) % 2 == 0, lengths)
    flat[start : start + len(inside)][inside] = value
