"""Files as users and strangers name them: paths with ~, and ordinary files of a size that memory can hold."""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

LARGEST = 2**30


def user_path(path: str | Path) -> Path:
    """A path with ~ expanded; one with the home of an unknown user stays, and is then reported as missing."""
    return Path(os.path.expanduser(path))


def read_ordinary(path: str | Path, most: int = LARGEST) -> bytes:
    """The content of an ordinary file. Pipes and devices, which may have no end, raise `OSError`."""
    with open_ordinary(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise OSError(errno.EFBIG, f"it is too large ({size / 2**20:.0f} MiB)", str(path))
        return file.read()


def open_ordinary(path: str | Path) -> BufferedReader:
    """An ordinary file, open for reading."""
    file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115 (the caller closes it)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is not an ordinary file", str(path))
    return file


def check_ordinary(path: str | Path) -> None:
    """Raise `OSError` unless this is an ordinary file: for libraries that open one by its name."""
    open_ordinary(path).close()


def _without_waiting(path: str, flags: int) -> int:
    """Opens a pipe without waiting for somebody to write into it."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
