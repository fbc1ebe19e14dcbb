"""EWF: endpoints weight fusion (Xiao et al., CVPR 2023), for any method.

When a step is trained, its weights are averaged with those that it began with: old classes keep what they
were recognised by, and the new classifier stays as trained. Nothing is kept and nothing is added to the
network. The authors freeze old classifiers as well; here the method decides that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from segue.core.config import Fuse
from segue.core.scenario import Step


def new_share(fuse: Fuse, step: Step) -> float:
    """alpha, the weight of the trained tensors: 1 leaves them as they are.

    `ewf` is sqrt(new / all), with background among all.
    """
    if step.first or fuse == "none":
        return 1.0
    return math.sqrt(len(step.new) / step.num_channels) if fuse == "ewf" else float(fuse)


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """A copy of the tensors that can be averaged: batch norm's statistics too, but not what it counts."""
    state = model.state_dict()
    return {name: tensor.clone() for name, tensor in state.items() if tensor.is_floating_point()}


@torch.no_grad()
def fuse_weights(model: nn.Module, before: Mapping[str, Tensor], share: float) -> None:
    """Every tensor that was there before becomes (1 - share) of what it was and share of what it is."""
    for name, tensor in model.state_dict().items():
        old = before.get(name)
        if old is not None and old.shape == tensor.shape:
            tensor.lerp_(old.to(tensor.device), 1 - share)
