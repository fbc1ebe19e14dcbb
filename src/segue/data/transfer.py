"""From the host's memory to a device, without waiting for what that device has still to do."""

from __future__ import annotations

import torch
from torch import Tensor


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor on a device. Only a copy from pinned memory goes by itself, and MPS has no such memory.

    Examples:
        >>> import torch
        >>> sent(torch.ones(2), torch.device("cpu")).tolist()
        [1.0, 1.0]
    """
    if device.type in ("cpu", "mps") or tensor.device.type != "cpu":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
