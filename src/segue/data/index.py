"""Which classes are in which image: read once, in parallel, and kept under a fingerprint of the content.

The same pass checks every file, so that bad data stops a run before it trains.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Container
from pathlib import Path

import numpy as np

from segue.core.errors import UserError
from segue.core.records import atomic_file
from segue.data.check_files import check_all
from segue.data.datasets.base import SegDataset

SHOWN_PROBLEMS = 5


def class_index(
    dataset: SegDataset,
    advance: Callable[[int, int], None] | None = None,
    unneeded: Container[str] = frozenset(),
) -> np.ndarray:
    """`present[i, c]`: id c occurs in image i. `advance(done, total)` is called as images are read.

    Images whose names are `unneeded` may be gone: then nothing occurs in them.
    """
    path = _place(dataset)
    stored = _load(path, len(dataset))
    if stored is not None:
        return stored
    present = np.zeros((len(dataset), 256), dtype=bool)
    problems: list[str] = []
    done = gone = 0
    for found in check_all(dataset):
        count = len(found.pixels)
        present[done : done + count] = found.pixels > 0
        needed = [str(error) for i, error in found.bad.items() if dataset.keys[done + i] not in unneeded]
        gone += len(found.bad) - len(needed)
        problems += needed
        done += count
        if advance is not None:
            advance(done, len(dataset))
    if problems:
        raise UserError(_summary(problems))
    if not gone:  # others may need those images
        _store(path, present)
    return present


def keep_index(dataset: SegDataset, present: np.ndarray) -> None:
    """Keep a class index that was found otherwise, so that nobody has to read the files again."""
    _store(_place(dataset), present)


def cache_folder() -> Path:
    """Where derived files are kept: $SEGUE_CACHE, or the user's cache folder."""
    if os.environ.get("SEGUE_CACHE"):
        return Path(os.environ["SEGUE_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "segue"


def _place(dataset: SegDataset) -> Path:
    digest = hashlib.sha256(dataset.fingerprint().encode()).hexdigest()[:32]
    return cache_folder() / "index" / f"{digest}.npy"


def _load(path: Path, length: int) -> np.ndarray | None:
    try:
        stored = np.load(io.BytesIO(path.read_bytes()), allow_pickle=False)
    except Exception:  # absent or damaged, for which numpy has many kinds of error: built anew
        return None
    fits = isinstance(stored, np.ndarray) and stored.dtype == np.uint8 and stored.shape == (length, 32)
    return np.unpackbits(stored, axis=1).astype(bool) if fits else None


def _store(path: Path, present: np.ndarray) -> None:
    try:
        with atomic_file(path) as file:
            np.save(file, np.packbits(present, axis=1))
    except UserError:
        pass  # a cache that cannot be written only costs time


def _summary(problems: list[str]) -> str:
    lines = problems[:SHOWN_PROBLEMS]
    if len(problems) > SHOWN_PROBLEMS:
        lines.append(f"... and {len(problems) - SHOWN_PROBLEMS} more files with problems.")
    return "\n".join(lines)
