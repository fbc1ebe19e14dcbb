"""The device that a run computes on: which one, at which precision, and how much of its memory is used."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path

import torch

from segue.core.errors import UserError

AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


def pick_device(name: str = "auto") -> torch.device:
    """`auto` takes CUDA, then MPS, then the CPU."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).cpu()  # of `meta` there is nothing to copy
    except (RuntimeError, AssertionError, ImportError, AttributeError, NotImplementedError) as error:
        reason = str(error).splitlines()[0].partition(". ")[0]  # some list all devices there are
        raise UserError(f"The device '{name}' cannot be used here: {reason}") from error
    return device


def autocast(device: torch.device, precision: str) -> AbstractContextManager:
    if precision == "fp32":
        return nullcontext()
    return torch.autocast(device.type, dtype=AUTOCAST[precision])


@contextmanager
def full_device_is_told(then: str = "") -> Iterator[None]:
    """What CUDA says when its memory is full, wherever that is but in an iteration, as a sentence."""
    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        raise UserError(
            "The device has not enough memory to prepare, end or test a step. Likely fixes: a smaller"
            f" train.batch_size, train.crop or eval.size.{then}"
        ) from error


def synchronize(device: torch.device) -> None:
    """Wait until the device has done what it was given: before a clock is read."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def reset_peak_memory(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    elif sys.platform == "linux":
        with suppress(OSError):  # where it is not allowed, the peak is that of the whole process
            Path("/proc/self/clear_refs").write_text("5")  # the resident-set peak becomes the present size


def peak_memory(device: torch.device) -> int:
    """Bytes: the device's peak on CUDA, the process's resident-set peak elsewhere."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if sys.platform == "linux":
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    import resource  # not on Windows

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
