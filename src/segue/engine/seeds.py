"""Random numbers: seeds that follow from one another, and the generators that they go to."""

from __future__ import annotations

import random

import numpy as np
import torch


def derive_seed(*numbers: int) -> int:
    """A seed that differs for every combination of numbers."""
    words = (len(numbers), *numbers)  # a SeedSequence does not tell (42,) from (42, 0)
    return int(np.random.SeedSequence(words).generate_state(1, dtype=np.uint64)[0]) >> 1


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
