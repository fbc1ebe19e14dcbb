"""Who this process is if torchrun has started it, read from the environment that torchrun sets."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Launch:
    """A process among others; without torchrun the only one."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    """among those of its node"""
    restarts: int = 0
    """how often torchrun has started all of them again"""
    by_torchrun: bool = False


def this_launch() -> Launch:
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return Launch()
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_RESTART_COUNT")
    return Launch(*(int(os.environ[name]) for name in names), by_torchrun=True)


def launcher() -> str:
    """Host, number and start of the process that started this one: no two launches have the same."""
    parent, start = os.getppid(), ""
    with suppress(OSError):  # Linux only
        start = Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[19]
    return f"{platform.node()} {parent} {start}"
