"""The refinement head: DeepLab-v3 as MiB, PLOP and CAF use it, and two smaller sizes.

It is not the textbook head: the image-level branch is *added* to the projected branches, not concatenated.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

SLOPE = 0.01
"""leaky ReLU, as in the published networks"""

HEADS = {"deeplabv3": (256, (6, 12, 18)), "lite": (128, (2, 4)), "tiny": (64, (1, 2))}
"""name -> width, dilations of the 3 x 3 branches"""


def norm_act(channels: int) -> nn.Sequential:
    return nn.Sequential(nn.BatchNorm2d(channels), nn.LeakyReLU(SLOPE, inplace=True))


class DeepLabHead(nn.Module):
    """z (B x C x h x w) -> h (B x width x h x w)."""

    def __init__(self, in_channels: int, width: int, dilations: tuple[int, ...]) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            [nn.Conv2d(in_channels, width, 1, bias=False)]
            + [nn.Conv2d(in_channels, width, 3, padding=d, dilation=d, bias=False) for d in dilations]
        )
        self.branch_norm = norm_act(width * len(self.branches))
        self.project = nn.Conv2d(width * len(self.branches), width, 1, bias=False)
        self.pool = nn.Sequential(
            nn.Conv2d(in_channels, width, 1, bias=False),
            norm_act(width),
            nn.Conv2d(width, width, 1, bias=False),
        )
        self.norm = norm_act(width)
        gain = nn.init.calculate_gain("leaky_relu", SLOPE)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.xavier_normal_(module.weight, gain)

    def forward(self, z_BChw: Tensor) -> Tensor:
        local_BFhw = self.project(
            self.branch_norm(torch.cat([branch(z_BChw) for branch in self.branches], dim=1))
        )
        return self.norm(local_BFhw + self.pool(z_BChw.mean((2, 3), keepdim=True)))
