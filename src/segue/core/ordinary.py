"""Files as users and strangers name them: paths with ~, and ordinary files of a size that memory can hold."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

LARGEST = 2**30


def user_path(path: str | Path) -> Path:
    """A path with ~ expanded; one with the home of an unknown user stays, and is then reported as missing."""
    return Path(os.path.expanduser(path))


def read_ordinary(path: str | Path, most: int = LARGEST) -> bytes:
    """The content of an ordinary file. Pipes and devices, which may have no end, raise `OSError`."""
    with open(path, "rb", buffering=0, opener=_without_waiting) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not an ordinary file", str(path))
        if status.st_size > most:
            raise OSError(errno.EFBIG, f"it is too large ({status.st_size / 2**20:.0f} MiB)", str(path))
        return file.readall()


def _without_waiting(path: str, flags: int) -> int:
    """Opens a pipe without waiting for somebody to write into it."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
