"""Sums over the processes of a parallel run: all that losses and methods know of such runs."""

from __future__ import annotations

import torch.distributed as dist
from torch import Tensor


def sum_over_processes(values: Tensor) -> Tensor:
    """The sum of a tensor over all processes, in its place; with one process it stays as it is."""
    if dist.is_available() and dist.is_initialized():
        dist.all_reduce(values)
    return values


def this_process() -> tuple[int, int]:
    """The number of this process, and how many there are."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1
