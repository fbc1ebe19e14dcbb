"""A classifier that grows: one 1 x 1 convolution with bias per step, outputs side by side."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class GrowingClassifier(nn.Module):
    """h (B x F x h x w) -> logits (B x K x h x w); K = 1 + number of classes seen."""

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.parts = nn.ModuleList()

    @property
    def channels(self) -> int:
        return sum(part.out_channels for part in self.parts)

    def grow(self, channels: int, balanced: bool) -> None:
        """Add channels. `balanced` starts them as equal shares of the background's probability (MiB).

        Then p(background) + sum p(new) equals the old p(background) and no other class changes.
        """
        part = nn.Conv2d(self.in_channels, channels, 1)
        if self.parts:
            first = self.parts[0]
            part = part.to(first.weight.device, first.weight.dtype)
            if balanced:
                with torch.no_grad():
                    first.bias[0] -= math.log(channels + 1)
                    part.weight.copy_(first.weight[:1].expand_as(part.weight))
                    part.bias.fill_(first.bias[0])
        self.parts.append(part)

    def forward(self, h_BFhw: Tensor) -> Tensor:
        return torch.cat([part(h_BFhw) for part in self.parts], dim=1)
