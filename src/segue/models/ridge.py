"""A classifier that is solved for instead of trained: ridge regression on randomly widened features."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SEED = 20241213
"""seed of the random layer: the same for every model of a width, so that sums of two sites belong together"""


class RidgeClassifier(nn.Module):
    """h (B x F x h x w) -> logits (B x K x h x w): regression values of relu(R h), times a factor.

    R is random and fixed. Step 0 trains an ordinary 1 x 1 convolution, which counts until values are fitted.
    """

    def __init__(self, in_channels: int, width: int) -> None:
        super().__init__()
        self.in_channels, self.width = in_channels, width
        self.parts = nn.ModuleList()
        self.sizes: tuple[int, ...] = ()
        """channels of each step, background in the first"""
        drawn = torch.rand(width, in_channels, 1, 1, generator=torch.Generator().manual_seed(SEED))
        self.register_buffer("random", (2 * drawn - 1) / in_channels**0.5)
        self.register_buffer("weight", torch.zeros(0, width, 1, 1))
        self.register_buffer("factor", torch.ones(()))
        self.register_buffer("fitted", torch.zeros((), dtype=torch.bool))
        self.solved = False
        """what `fitted` says, as a word that no device has to be asked for and that exporters understand"""
        self.register_load_state_dict_post_hook(_read_fitted)

    def grow(self, channels: int, balanced: bool) -> None:
        """Make room for channels; their values are 0 until they are fitted."""
        if not self.parts:
            self.parts.append(nn.Conv2d(self.in_channels, channels, 1))
        self.sizes = (*self.sizes, channels)
        self.weight = F.pad(self.weight, (0, 0, 0, 0, 0, 0, 0, channels))

    def widened(self, h_BFhw: Tensor) -> Tensor:
        """relu(R h): B x width x h x w."""
        return F.conv2d(h_BFhw, self.random.to(h_BFhw.dtype)).relu()

    def values(self, widened_BDhw: Tensor) -> Tensor:
        """Regression values, near 1 for the class of a place and near 0 for the others."""
        return F.conv2d(widened_BDhw, self.weight.to(widened_BDhw.dtype))

    @torch.no_grad()
    def fit(self, weights_DK: Tensor) -> None:
        self.weight.copy_(weights_DK.t()[:, :, None, None])
        self.fitted.fill_(True)
        self.solved = True

    def forward(self, h_BFhw: Tensor) -> Tensor:
        if not self.solved:
            return self.parts[0](h_BFhw)
        return self.factor * self.values(self.widened(h_BFhw))


def _read_fitted(classifier: nn.Module, _: object) -> None:
    classifier.solved = bool(classifier.fitted)
