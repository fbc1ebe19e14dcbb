"""How costs are measured: time in turns, since machines are noisy; memory in fresh processes."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeVar

import torch

from segue.core.progress import Bar
from segue.engine.device import peak_memory, reset_peak_memory, synchronize

T = TypeVar("T")


def in_turns(
    calls: Sequence[Callable[[], Any]], rounds: int, device: torch.device, bar: Bar | None = None
) -> list[list[float]]:
    """Seconds of each call, round by round; all are called once before, to warm up."""
    times: list[list[float]] = [[] for _ in calls]
    for turn in range(rounds + 1):
        for own, call in zip(times, calls, strict=True):
            began = time.perf_counter()
            call()
            synchronize(device)
            if turn:
                own.append(time.perf_counter() - began)
        if bar is not None:
            bar.update(turn + 1)
    return times


def ratio(ours: Sequence[float], plain: Sequence[float]) -> float:
    """Median of the ratios, round by round."""
    return statistics.median(a / b for a, b in zip(ours, plain, strict=True))


def growth(work: Callable[[], Any], device: torch.device) -> int:
    """Bytes by which work raises the peak above the size before it: of this process, or of a CUDA device."""
    reset_peak_memory(device)
    before = peak_memory(device)  # right after a reset: the present size
    work()
    return peak_memory(device) - before


def in_own_process(function: Callable[..., T], *arguments: Any) -> T:
    """What a function returns in a process that has done nothing else."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()
