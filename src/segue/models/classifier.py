"""Classifiers that grow: a part per step, outputs side by side, background first.

Shapes: B batch, F channels of the head's map h, h x w, K channels (background and the classes seen).
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from segue.models.ridge import RidgeClassifier


@torch.no_grad()
def copy_background(first: nn.Conv2d, part: nn.Conv2d, shift: float = 0.0) -> None:
    """All channels of `part` become copies of the first channel of `first`, and both lose `shift`.

    Layers without bias cannot be shifted: plain copies remain.
    """
    part.weight.copy_(first.weight[:1].expand_as(part.weight))
    if first.bias is not None and part.bias is not None:
        first.bias[0] -= shift
        part.bias.fill_(first.bias[0])


class GrowingClassifier(nn.Module):
    """h (B x F x h x w) -> logits (B x K x h x w), a 1 x 1 convolution with bias per step."""

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.parts = nn.ModuleList()

    @property
    def sizes(self) -> tuple[int, ...]:
        """Channels of each step, background in the first."""
        return tuple(part.out_channels for part in self.parts)

    def grow(self, channels: int, balanced: bool) -> None:
        """Add channels. `balanced` starts them as equal shares of the background's probability (MiB).

        Then p(background) + sum p(new) equals the old p(background) and no other class changes.
        """
        part = nn.Conv2d(self.in_channels, channels, 1)
        if self.parts:
            first = self.parts[0]
            part = part.to(first.weight.device, first.weight.dtype)
            if balanced:
                copy_background(first, part, math.log(channels + 1))
        self.parts.append(part)

    def forward(self, h_BFhw: Tensor) -> Tensor:
        """All parts as one convolution: one for each of 60 steps takes twenty times as long."""
        weight_KF11, bias_K = (
            torch.cat([getattr(part, name) for part in self.parts]) for name in ("weight", "bias")
        )
        return F.conv2d(h_BFhw, weight_KF11, bias_K)

    def at_places(self, h_MF: Tensor) -> Tensor:
        """Logits (M x K) of single places, as if their surroundings were the same."""
        return self(h_MF[:, :, None, None])[:, :, 0, 0]


class SigmoidClassifier(nn.Module):
    """A score for each class against all else, no background: its channel is the constant 0.

    A class is then the answer where its probability is the largest and above a half, and every tool that
    knows channels with background first reads the output rightly.
    """

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.parts = nn.ModuleList()

    @property
    def sizes(self) -> tuple[int, ...]:
        """Channels of each step, background in the first."""
        return tuple(part.out_channels + (index == 0) for index, part in enumerate(self.parts))

    def grow(self, channels: int, balanced: bool) -> None:
        """Add channels. There is no background that new classes could share."""
        part = nn.Conv2d(self.in_channels, channels if self.parts else channels - 1, 1)
        if self.parts:
            part = part.to(self.parts[0].weight.device, self.parts[0].weight.dtype)
        self.parts.append(part)

    def scores(self, h_BFhw: Tensor) -> Tensor:
        """Logits of the classes: B x (K - 1) x h x w."""
        return torch.cat([part(h_BFhw) for part in self.parts], dim=1)

    def forward(self, h_BFhw: Tensor) -> Tensor:
        return F.pad(self.scores(h_BFhw), (0, 0, 0, 0, 1, 0))


class UnknownClassifier(nn.Module):
    """Binary heads, one per step, one for background, and one for "unknown": things that have no name yet.

    A head is a 3 x 3 convolution, norm, ReLU and a 1 x 1 convolution (SSUL, Cha et al. 2021). The channel of
    background holds both what is background and what is unknown, so the output is that of any classifier.
    """

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.background, self.unknown = self._head(1), self._head(1)
        self.parts = nn.ModuleList()

    @property
    def sizes(self) -> tuple[int, ...]:
        """Channels of each step, background in the first."""
        return tuple(part[-1].out_channels + (index == 0) for index, part in enumerate(self.parts))

    def grow(self, channels: int, balanced: bool) -> None:
        """Add channels. `balanced` starts them as copies of the unknown: new classes were that before."""
        part = self._head(channels if self.parts else channels - 1)
        like = self.unknown[-1].weight
        part = part.to(like.device, like.dtype)
        if balanced and self.parts:
            with torch.no_grad():
                for name, value in part.state_dict().items():
                    value.copy_(self.unknown.state_dict()[name].expand_as(value))
        self.parts.append(part)

    def scores(self, h_BFhw: Tensor) -> Tensor:
        """Logits of background, of all classes, and of the unknown: B x (K + 1) x h x w."""
        return torch.cat([head(h_BFhw) for head in (self.background, *self.parts, self.unknown)], dim=1)

    def forward(self, h_BFhw: Tensor) -> Tensor:
        return fold_unknown(self.scores(h_BFhw))

    def _head(self, channels: int) -> nn.Sequential:
        width = self.in_channels
        return nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, channels, 1),
        )


def fold_unknown(scores_BUhw: Tensor) -> Tensor:
    """The probability of the unknown, the last channel, added to background's; the others as they are."""
    scores_BUhw = scores_BUhw.to(torch.promote_types(scores_BUhw.dtype, torch.float32))
    probability_B1hw = scores_BUhw[:, :1].sigmoid() + scores_BUhw[:, -1:].sigmoid()
    background_B1hw = probability_B1hw.clamp(1e-6, 1 - 1e-6).logit()
    return torch.cat([background_B1hw, scores_BUhw[:, 1:-1]], dim=1)


def close_background(logits_BKhw: Tensor) -> Tensor:
    """Logits by which no pixel is background; finite, so that maps can still be interpolated."""
    never_B1hw = torch.full_like(logits_BKhw[:, :1], torch.finfo(logits_BKhw.dtype).min / 4)
    return torch.cat([never_B1hw, logits_BKhw[:, 1:]], dim=1)


CLASSIFIERS = {
    "linear": GrowingClassifier,
    "ridge": RidgeClassifier,
    "sigmoid": SigmoidClassifier,
    "unknown": UnknownClassifier,
}
Classifier = GrowingClassifier | RidgeClassifier | SigmoidClassifier | UnknownClassifier
