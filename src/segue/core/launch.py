"""Who this process is if torchrun has started it, as the environment says, and how it starts others."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

SET_PARENT_DEATH_SIGNAL = 1
"""option PR_SET_PDEATHSIG of Linux's prctl"""


@dataclass(frozen=True)
class Launch:
    """A process among others; without torchrun the only one."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    """rank among the processes of the same node"""
    by_torchrun: bool = False


def this_launch() -> Launch:
    numbers = [os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")]
    if "TORCHELASTIC_RUN_ID" not in os.environ or not all(number.isdigit() for number in numbers):
        return Launch()
    rank, size, local_rank = map(int, numbers)
    return Launch(rank, size, local_rank, by_torchrun=True)


def end_with_torchrun() -> None:
    """Processes whose torchrun is killed save and stop, too, instead of training on unseen (on Linux)."""
    if this_launch().by_torchrun:
        end_with_parent()


def end_with_parent() -> None:
    """Ask for SIGTERM when the process that started this one is gone (on Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)


@contextmanager
def safe_path() -> Iterator[None]:
    """Processes that are started here take no modules from the current folder.

    multiprocessing starts `python -c`, which looks there first: a stray `pickle.py` would be executed.
    """
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = before


def launcher() -> str:
    """Host, number and start of the process that started this one: no two launches have the same."""
    parent, start = os.getppid(), ""
    with suppress(OSError):  # Linux only
        start = Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[19]
    return f"{platform.node()} {parent} {start}"
