"""Parallel twins of convolutions that can be merged (RCIL, Zhang et al., CVPR 2022).

A twin stands for a 3 x 3 convolution and its batch norm: two of both side by side, averaged. In training a
channel takes the left one, the right one or both, a third of the time each. With fixed statistics the average
is one convolution again, so a network that is used has no twins.

Shapes: B batch, C channels, h x w.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from segue.models._speed.fold import Maps, following_norms, link_norms, rest_of, unlink_norms


class Twins(nn.Module):
    """Two convolutions, each with its norm, averaged; the activation comes after."""

    def __init__(self, conv: nn.Conv2d, norm: _BatchNorm, norm_name: str) -> None:
        super().__init__()
        self.origin, self.norm_name = (conv, norm), norm_name
        """the two that it stands for, and the norm's place: a tuple is no part of the state"""
        self.left, self.right = copy.deepcopy(conv), copy.deepcopy(conv)
        for each in (self.left, self.right):
            if each.bias is None:  # the merged one needs it
                each.bias = nn.Parameter(each.weight.new_zeros(each.out_channels))
        self.left_norm, self.right_norm = plain_norm(norm), plain_norm(norm)

    def forward(self, x_BChw: Tensor) -> Tensor:
        left_BChw = self.left_norm(self.left(x_BChw))
        right_BChw = self.right_norm(self.right(x_BChw))
        if not self.training:
            return (left_BChw + right_BChw) / 2
        third_C = torch.randint(0, 3, (left_BChw.shape[1],), device=x_BChw.device)
        share_C11 = (third_C.to(left_BChw.dtype) / 2)[:, None, None]  # 0, a half, or 1
        return share_C11 * left_BChw + (1 - share_C11) * right_BChw

    @torch.no_grad()
    def merged(self) -> tuple[Tensor, Tensor]:
        """Weight and bias of the one convolution that does the same."""
        pairs = [_folded(self.left, self.left_norm), _folded(self.right, self.right_norm)]
        weight, bias = (sum(each) / 2 for each in zip(*pairs, strict=True))
        return weight, bias

    @torch.no_grad()
    def merge_into_left(self) -> None:
        """The left one becomes what both were together, and is trained no more."""
        weight, bias = self.merged()
        self.left.weight.copy_(weight)
        self.left.bias.copy_(bias)
        make_identity(self.left_norm)


def plain_norm(norm: _BatchNorm) -> nn.BatchNorm2d:
    """A batch norm of the same numbers without what comes after it in some of timm's."""
    plain = nn.BatchNorm2d(norm.num_features, norm.eps, norm.momentum)
    state = {name: value for name, value in norm.state_dict().items() if name in plain.state_dict()}
    plain.load_state_dict(state)
    return plain.to(norm.running_mean.device, norm.running_mean.dtype)


@torch.no_grad()
def make_identity(norm: _BatchNorm, shift: Tensor | float = 0.0) -> None:
    """A norm that, with its running statistics, adds a shift and does nothing else."""
    norm.running_mean.zero_()
    norm.running_var.fill_(1 - norm.eps)
    norm.weight.fill_(1.0)
    norm.bias.zero_().add_(shift)


def _folded(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    scale = norm.weight / (norm.running_var + norm.eps).sqrt()
    return conv.weight * scale[:, None, None, None], norm.bias + (conv.bias - norm.running_mean) * scale


def add_twins(model: nn.Module, within: nn.Module, maps: Maps) -> list[str]:
    """Replace the trained 3 x 3 convolutions of a part whose norm follows them alone; returns their names."""
    unlink_norms(model)
    names = {module: name for name, module in model.named_modules()}
    inside, found = set(within.modules()), []
    for norm, conv in following_norms(model, maps):
        if conv in inside and conv.kernel_size == (3, 3) and conv.weight.requires_grad:
            found.append(names[conv])
            _set(model, names[conv], Twins(conv, norm, names[norm]))
            rest = rest_of(norm)
            _set(model, names[norm], nn.Sequential(*rest) if rest else nn.Identity())
    link_norms(model, maps)
    return found


@torch.no_grad()
def merge_twins(model: nn.Module, maps: Maps) -> None:
    """Every pair as the one convolution and the norm that it stands for: the network as it was built."""
    twins = [(name, module) for name, module in model.named_modules() if isinstance(module, Twins)]
    unlink_norms(model)
    for name, module in twins:
        weight, shift = module.merged()
        conv, norm = (copy.deepcopy(each).to(weight.device, weight.dtype) for each in module.origin)
        conv.weight.copy_(weight)
        make_identity(norm, shift)
        norm.train(module.training)
        _set(model, name, conv)
        _set(model, module.norm_name, norm)
    link_norms(model, maps)


def _set(model: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, own = name.rpartition(".")
    setattr(model.get_submodule(parent), own, module)
