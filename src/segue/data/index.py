"""Which classes are in which image: read once, in parallel, and kept under a fingerprint of the content.

The same pass checks every file, so that bad data stops a run before it trains.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Container
from pathlib import Path

import numpy as np

from segue.core.errors import UserError
from segue.core.ordinary import read_ordinary
from segue.core.records import atomic_file
from segue.data.check_files import check_all
from segue.data.datasets.base import SegDataset

SHOWN_PROBLEMS = 5
DIGEST_BYTES, ROW_BYTES = 32, 32
"""bytes of a stored index: the digest first, then 256 bits for each image"""


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
    if os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"]) / "segue"
    try:
        return Path.home() / ".cache" / "segue"
    except RuntimeError as error:  # neither HOME nor an entry for this user
        raise UserError("This user has no home folder for Segue's cache: set SEGUE_CACHE=FOLDER.") from error


def _place(dataset: SegDataset) -> Path:
    digest = hashlib.sha256(dataset.fingerprint().encode()).hexdigest()[:32]
    return cache_folder() / "index" / f"{digest}.index"


def _load(path: Path, length: int) -> np.ndarray | None:
    """A stored class index; None where there is none, or it is not what was stored: it is built anew."""
    try:
        content = read_ordinary(path)
    except OSError:
        return None
    bits = content[DIGEST_BYTES:]
    if len(bits) != length * ROW_BYTES or content[:DIGEST_BYTES] != _digest(path, bits):
        return None
    rows = np.frombuffer(bits, dtype=np.uint8).reshape(length, ROW_BYTES)
    return np.unpackbits(rows, axis=1).astype(bool)


def _store(path: Path, present: np.ndarray) -> None:
    bits = np.packbits(present, axis=1).tobytes()
    try:
        with atomic_file(path) as file:
            file.write(_digest(path, bits) + bits)
    except UserError:
        pass  # a cache that cannot be written only costs time


def _digest(path: Path, bits: bytes) -> bytes:
    """Of the content and of its name, which tells whose it is."""
    return hashlib.blake2b(bits, digest_size=DIGEST_BYTES, key=path.stem.encode()).digest()


def _summary(problems: list[str]) -> str:
    lines = problems[:SHOWN_PROBLEMS]
    if len(problems) > SHOWN_PROBLEMS:
        lines.append(f"... and {len(problems) - SHOWN_PROBLEMS} more files with problems.")
    return "\n".join(lines)
