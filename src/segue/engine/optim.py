"""SGD with one learning rate per part of the network and a poly schedule per iteration."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from segue.core.config import OptimConfig
from segue.core.errors import UserError, brief
from segue.core.scenario import Step
from segue.methods.base import Method


def build_optimizer(method: Method, config: OptimConfig, step: Step) -> torch.optim.SGD:
    """A fresh optimiser for a step; each group remembers its base learning rate."""
    base = config.lr_first if step.first else config.lr_next
    factors = {
        "backbone": 1.0,
        "head": config.head_factor,
        "new": config.new_factor or config.head_factor,
        "layer": config.layer_factor,
    }
    groups = []
    for name, params in param_groups(method).items():
        rate = base * factors[name]
        if params:
            groups.append({"params": params, "lr": rate, "base_lr": rate, "name": name})
    if not groups:
        raise UserError("Nothing is left to train: every parameter is frozen.")
    nesterov = config.nesterov and config.momentum > 0
    fused = has_fused_sgd(groups[0]["params"][0].device)
    optimizer = torch.optim.SGD(
        groups,
        lr=base,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        nesterov=nesterov,
        fused=fused or None,
    )
    if fused:
        optimizer.register_step_pre_hook(lambda chosen, *_: _prepare(chosen))
        optimizer.register_load_state_dict_post_hook(_lay_out_momentum)
    return optimizer


def load_optimizer(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Load what a checkpoint holds; ValueError if it is that of another optimiser.

    The settings follow from the recipe: only the learning rate moves.
    """
    for own, stored in zip(optimizer.param_groups, state["param_groups"], strict=True):
        for key in ("base_lr", "momentum", "weight_decay", "nesterov", "name"):
            if stored.get(key) != own[key]:
                raise ValueError(f"its optimiser has {key} {brief(stored.get(key))}, not {own[key]}")
    parameters = dict(enumerate(p for group in optimizer.param_groups for p in group["params"]))
    for index, kept in state["state"].items():
        momentum = kept.get("momentum_buffer")
        if momentum is not None and momentum.shape != parameters[index].shape:
            raise ValueError(f"a momentum of its optimiser has the shape {tuple(momentum.shape)}")
    optimizer.load_state_dict(state)


def param_groups(method: Method) -> dict[str, list[nn.Parameter]]:
    """Trainable parameters, each group with its own rate factor: backbone, head, classifiers of new classes
    (in incremental steps), and what the method added."""
    model = method.model
    backbone = model.encoder_parameters()
    new = list(model.classifier.parts[-1].parameters()) if len(model.classifier.parts) > 1 else []
    known = {id(parameter) for parameter in new}
    both = (*model.head_parameters(), *model.classifier.parameters())
    head = [parameter for parameter in both if id(parameter) not in known]
    known |= {id(parameter) for parameter in backbone + head}
    layer = [parameter for parameter in method.parameters() if id(parameter) not in known]
    groups = {"backbone": backbone, "head": head, "new": new, "layer": layer}
    return {name: [p for p in group if p.requires_grad] for name, group in groups.items()}


def has_fused_sgd(device: torch.device) -> bool:
    """Whether torch has an SGD for this device that reads and writes each weight once."""
    probe = torch.zeros(1, device=device, requires_grad=True)
    probe.grad = torch.zeros_like(probe)
    try:
        torch.optim.SGD([probe], lr=0.1, momentum=0.9, fused=True).step()
    except (RuntimeError, NotImplementedError):
        return False
    return True


def _prepare(optimizer: torch.optim.Optimizer) -> None:
    """What fused kernels take for granted: gradients with the strides of their weights, momentum for all.

    A part that a method does without at first has no momentum yet; none and zero are the same.
    """
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            if parameter.grad.stride() != parameter.stride():
                parameter.grad = torch.empty_like(parameter).copy_(parameter.grad)
            state = optimizer.state[parameter]
            if group["momentum"] and state.get("momentum_buffer") is None:
                state["momentum_buffer"] = torch.zeros_like(parameter)


def _lay_out_momentum(optimizer: torch.optim.Optimizer) -> None:
    """Checkpoints hold dense tensors; weights may be channels last."""
    for parameter, state in optimizer.state.items():
        if (momentum := state.get("momentum_buffer")) is not None:
            state["momentum_buffer"] = torch.empty_like(parameter).copy_(momentum)


def set_learning_rate(optimizer: torch.optim.Optimizer, iteration: int, total: int, power: float) -> None:
    """lr = base (1 - iteration / total)^power."""
    factor = (1 - iteration / total) ** power
    for group in optimizer.param_groups:
        group["lr"] = group["base_lr"] * factor
