"""Device, random numbers, precision, memory: everything that is not the experiment itself."""

from __future__ import annotations

import platform
import random
import sys
from contextlib import AbstractContextManager, nullcontext, suppress
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

import segue
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


def derive_seed(*numbers: int) -> int:
    """A seed that differs for every combination of numbers."""
    words = (len(numbers), *numbers)  # a SeedSequence does not tell (42,) from (42, 0)
    return int(np.random.SeedSequence(words).generate_state(1, dtype=np.uint64)[0] >> 1)


def seed_all(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True


def seed_iteration(device: torch.device, seed: int) -> None:
    """Seed the generators that layers draw from, such as dropout; quicker than `seed_all`."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


def device_random_state(device: torch.device) -> list[torch.Tensor]:
    """The state of an accelerator's own generator; nothing on the CPU."""
    if device.type == "cuda":
        return [torch.cuda.get_rng_state(device)]
    return [torch.mps.get_rng_state()] if device.type == "mps" else []


def restore_device_random_state(device: torch.device, state: list[torch.Tensor]) -> None:
    if device.type == "cuda" and state:
        torch.cuda.set_rng_state(state[0], device)
    elif device.type == "mps" and state:
        torch.mps.set_rng_state(state[0])


def autocast(device: torch.device, precision: str) -> AbstractContextManager:
    if precision == "fp32":
        return nullcontext()
    return torch.autocast(device.type, dtype=AUTOCAST[precision])


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


def versions(device: torch.device, processes: int = 1) -> dict[str, str]:
    return {
        "segue": segue.__version__,
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "torchvision", "timm", "numpy")},
        "device": torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else f"{device.type} {platform.machine()}",
        "threads": str(torch.get_num_threads()),
        **({"processes": str(processes)} if processes > 1 else {}),
    }
