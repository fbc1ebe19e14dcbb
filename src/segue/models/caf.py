"""The continual attentive fusion layer (CAF, Yang et al. 2022, section III-A), between encoder and head.

Shapes: B batch, C channels of z, D inner width, h x w map. v = non-local projection of z; the projections of
the new and the old features are fused; channel and spatial attention of the fused map form a structured
tensor:
    z_bar = (1 + A_ch x A_sp) v(old, new)                                                         (eq. 1-4)
As printed, the equations cut pretrained features off and grow without bound. So the projection is residual
and scaled by 1/sqrt(D), the fusion starts as "take the new features", and the attentions are bounded: A_ch is
squeeze and excitation (as in the released code), A_sp a tanh of a 1 x 1 convolution (a channel mean of a
convolution is one) that starts at zero. Put into a trained model, the layer changes nothing at first. Keys
and values are pooled 2 x 2, as in the released code.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

REDUCTION = 16


class NonLocal(nn.Module):
    """v = z + W softmax(theta(z)^T phi(z) / sqrt(D)) g(z), keys and values pooled 2 x 2; W starts at zero."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        inner = max(channels // 2, 1)
        self.theta, self.phi, self.g = (nn.Conv2d(channels, inner, 1) for _ in range(3))
        self.out = nn.Conv2d(inner, channels, 1)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, z_BChw: Tensor) -> Tensor:
        pooled = F.max_pool2d(z_BChw, 2, ceil_mode=True)
        query, key, value = (_tokens(x) for x in (self.theta(z_BChw), self.phi(pooled), self.g(pooled)))
        mixed_B1nD = F.scaled_dot_product_attention(query, key, value)
        mixed_BDhw = mixed_B1nD.squeeze(1).transpose(1, 2).unflatten(2, z_BChw.shape[-2:])
        return z_BChw + self.out(mixed_BDhw)


def _tokens(x_BDhw: Tensor) -> Tensor:
    """B x D x h x w -> B x 1 x (h w) x D: one attention head over places."""
    return x_BDhw.flatten(2).transpose(1, 2).unsqueeze(1)


class CafLayer(nn.Module):
    """z and, in training, the teacher's z -> z_bar. Without old features the fusion is skipped."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        hidden = max(channels // REDUCTION, 4)
        self.project_new = NonLocal(channels)
        self.project_old = NonLocal(channels)
        self.fusion = nn.Conv2d(2 * channels, channels, 1)
        self.channel = nn.Sequential(
            nn.Linear(channels, hidden, bias=False), nn.ReLU(), nn.Linear(hidden, channels, bias=False)
        )
        self.spatial = nn.Conv2d(channels, 1, 1)
        nn.init.zeros_(self.spatial.weight)  # no attention at first, but a full gradient towards it
        nn.init.zeros_(self.spatial.bias)
        with torch.no_grad():  # [0 | I]: at first the new features pass as they are
            self.fusion.weight.zero_()
            self.fusion.weight[:, channels:, 0, 0] = torch.eye(channels)
            self.fusion.bias.zero_()

    def fuse(self, z_BChw: Tensor, old_z_BChw: Tensor | None) -> Tensor:
        """v(old, new), or v(new) when there are no old features."""
        new_BChw = self.project_new(z_BChw)
        if old_z_BChw is None:
            return new_BChw
        return self.fusion(torch.cat([self.project_old(old_z_BChw), new_BChw], dim=1))

    def attention(self, v_BChw: Tensor) -> tuple[Tensor, Tensor]:
        """A_ch in (0, 1) (eq. 2, B x C x 1 x 1) and A_sp in (-1, 1) (eq. 1, B x 1 x h x w)."""
        channel_BC11 = self.channel(v_BChw.mean((2, 3))).sigmoid()[:, :, None, None]
        return channel_BC11, self.spatial(v_BChw).tanh()

    def structured(self, v_BChw: Tensor) -> Tensor:
        """A_str (eq. 3): by which share each feature is raised or, where A_sp is negative, lowered."""
        channel_BC11, spatial_B1hw = self.attention(v_BChw)
        return channel_BC11 * spatial_B1hw

    def forward(self, z_BChw: Tensor, old_z_BChw: Tensor | None = None) -> Tensor:
        v_BChw = self.fuse(z_BChw, old_z_BChw)
        return v_BChw + self.structured(v_BChw) * v_BChw
