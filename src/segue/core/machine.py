"""What this machine has, found out at once and without torch: a GPU that training could use, free memory."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
"""limits of a container: those of version 2, or of version 1 in the folder `memory`"""
CGROUP_FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_inactive_file"),
)
"""limit, use, and the entry of memory.stat that counts file pages which can be let go"""


CLEARLY = 1.5
"""ratio of estimated to free memory from which on a run is refused: nearer estimates are not sure enough"""


@dataclass(frozen=True)
class CudaGpu:
    """The first GPU."""

    capability: int
    """major number of its compute capability: 8 (Ampere) and above compute in bf16"""


@cache
def cuda_gpu() -> CudaGpu | None:
    """The GPU that torch would use, by NVIDIA's management library, which makes no context on it."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "all").strip() in ("", "-1")
    if hidden or not _torch_knows_cuda():
        return None
    name = "nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1"
    try:
        library = ctypes.CDLL(name)
    except OSError:
        return None
    count, device = ctypes.c_uint(), ctypes.c_void_p()
    major, minor = ctypes.c_int(), ctypes.c_int()
    if library.nvmlInit_v2() != 0:
        return None
    try:
        if library.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0 or count.value == 0:
            return None
        found = library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
        if found:
            library.nvmlDeviceGetCudaComputeCapability(device, ctypes.byref(major), ctypes.byref(minor))
        return CudaGpu(major.value)
    finally:
        library.nvmlShutdown()


def _torch_knows_cuda() -> bool:
    """Whether torch was built with CUDA, as its file of versions says."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return False
    with suppress(OSError):
        text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
        return re.search(r"^cuda[^=]*= *['\"]", text, re.MULTILINE) is not None
    return False


def free_memory() -> int | None:
    """Bytes that a process can still have: of the machine, or of its container if that has fewer.

    None where the system does not say.
    """
    found = [size for size in (_free_on_machine(), _free_in_container()) if size is not None]
    return min(found) if found else None


def _free_on_machine() -> int | None:
    with suppress(OSError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    with suppress(AttributeError, ValueError, OSError):  # macOS: all there is, whoever has it now
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def _free_in_container(root: Path = CGROUP) -> int | None:
    for limit, used, idle in CGROUP_FILES:
        with suppress(OSError, ValueError):  # ValueError: "max", no limit
            left = int((root / limit).read_text()) - int((root / used).read_text())
            stat = (root / limit).with_name("memory.stat").read_text().splitlines()
            entries = dict(line.split(maxsplit=1) for line in stat if line)
            return max(left + int(entries.get(idle, 0)), 0)
    return None
