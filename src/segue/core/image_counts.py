"""How a step answered on every single test image: what a paired bootstrap over images needs.

`counts/<k>.npz` in a run folder holds, for each test image and channel, the pixels that are right (hits),
that have this truth, and that are predicted so. Summed over the images they are the margins of the step's
confusion matrix. Most are zero, so that a file takes some ten kilobytes.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from segue.core.amounts import size_text
from segue.core.errors import UserError, reason
from segue.core.ordinary import read_ordinary
from segue.core.packed import packed_counts
from segue.core.records import atomic_file

MOST_BYTES = 2**28
"""bytes of the unpacked counts: 100,000 images with 200 classes have fewer"""
PARTS = ("hits", "truth", "predicted")


@dataclass(frozen=True)
class ImageCounts:
    """Pixels by image, part and channel (N x 3 x C; parts as in PARTS)."""

    counts: np.ndarray
    images: str
    """digest of the images' names, in order: two runs can be paired if theirs are equal"""

    def write(self, folder: Path, step: int) -> None:
        with atomic_file(counts_file(folder, step), folder) as file:
            file.write(self.to_bytes())

    def to_bytes(self) -> bytes:
        file = io.BytesIO()
        np.savez_compressed(file, counts=self.counts.astype(np.int32), images=np.array(self.images))
        return file.getvalue()


def digest(keys: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(keys).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def counts_file(folder: Path, step: int) -> Path:
    return folder / "counts" / f"{step}.npz"


def read_counts(folder: Path, step: int) -> ImageCounts | None:
    """None if the run has kept none: it is older than these files."""
    path = counts_file(folder, step)
    try:
        content = read_ordinary(path) if path.is_file() else packed_counts(folder, step)
    except OSError as error:
        raise UserError(f"Cannot read {path}: {reason(error)}.") from error
    return None if content is None else _from_bytes(content, path)


def _from_bytes(content: bytes, path: Path) -> ImageCounts:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
        if size > MOST_BYTES:  # some kilobytes can be made to stand for any number of zeros
            raise ValueError(f"it stands for {size_text(size)}")
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            if file["counts"].dtype.kind not in "iu":
                raise ValueError(f"counts are whole numbers, not {file['counts'].dtype}")
            found = ImageCounts(file["counts"].astype(np.int64), str(file["images"]))
    except Exception as error:  # numpy and zipfile have many kinds of error for a file that is damaged
        raise UserError(f"{path} does not hold counts of single test images: {reason(error)}.") from error
    if found.counts.ndim != 3 or found.counts.shape[1] != len(PARTS) or found.counts.min(initial=0) < 0:
        raise UserError(f"{path} does not hold counts by image, part and channel: {found.counts.shape}.")
    return found
