"""A network as other programs should get it: the same numbers from ordinary layers alone."""

from __future__ import annotations

import copy

from torch import nn

from segue.models._speed.checkpointing import keep_all
from segue.models._speed.depthwise import QuickDepthwise
from segue.models._speed.fold import fold_norms


def plain_copy(network: nn.Module) -> nn.Module:
    """A copy on the CPU, in float32 and test mode, without gradients; what only training needs is undone."""
    plain = copy.deepcopy(network).cpu().float().eval().requires_grad_(False)
    keep_all(plain)
    fold_norms(plain)
    for module in plain.modules():
        if isinstance(module, QuickDepthwise):
            module.__class__ = nn.Conv2d
    return plain
