"""SGD with one learning rate per part of the network and a poly schedule per iteration."""

from __future__ import annotations

import torch

from segue.core.config import OptimConfig
from segue.core.errors import UserError
from segue.core.scenario import Step
from segue.methods.base import Method


def build_optimizer(method: Method, config: OptimConfig, step: Step) -> torch.optim.SGD:
    """A fresh optimiser for a step; each group remembers its base learning rate."""
    base = config.lr_first if step.first else config.lr_next
    factors = {"backbone": 1.0, "head": config.head_factor, "layer": config.layer_factor}
    groups = []
    for name, params in method.param_groups().items():
        rate = base * factors.get(name, config.layer_factor)  # a method may have groups of its own
        if params:
            groups.append({"params": params, "lr": rate, "base_lr": rate, "name": name})
    if not groups:
        raise UserError("Nothing is left to train: every parameter is frozen.")
    nesterov = config.nesterov and config.momentum > 0
    return torch.optim.SGD(
        groups, lr=base, momentum=config.momentum, weight_decay=config.weight_decay, nesterov=nesterov
    )


def set_learning_rate(optimizer: torch.optim.Optimizer, iteration: int, total: int, power: float) -> None:
    """lr = base (1 - iteration / total)^power."""
    factor = (1 - iteration / total) ** power
    for group in optimizer.param_groups:
        group["lr"] = group["base_lr"] * factor
