"""What the pixel losses take of a strip of logits: log-sum-exps or sums of softplus, and their gradients.

Shapes: a strip is N x R x K x W (strips.py); M blocks of channels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

Channels = tuple[tuple[int, int], ...]
"""ranges of channels, from and to"""


Blocks = tuple[tuple[int, int], ...]
"""channels that always go together, side by side"""


@lru_cache(maxsize=64)
def _blocks(asked: tuple[Channels, ...], num_channels: int) -> Blocks:
    cuts = {0, num_channels, *(cut for channels in asked for pair in channels for cut in pair)}
    return tuple(pairwise(sorted(cuts)))


@lru_cache(maxsize=256)
def _members(channels: Channels, blocks: Blocks) -> tuple[int, ...]:
    return tuple(i for i, (a, b) in enumerate(blocks) if any(s <= a and b <= t for s, t in channels))


@lru_cache(maxsize=16)
def _membership(blocks: Blocks, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Ones where a channel (column) belongs to a block (row)."""
    member_MK = torch.zeros(len(blocks), blocks[-1][1], dtype=dtype)
    for row, (start, stop) in zip(member_MK, blocks, strict=True):
        row[start:stop] = 1
    return member_MK.to(device)


class Activation(ABC):
    """The sums F_j over channels of a strip, and their gradient; the strip is used up."""

    def __init__(self, z_NRKW: Tensor, asked: Sequence[Channels]) -> None:
        """`asked`: the channels of every sum that will be asked for."""
        self.z_NRKW, self.asked = z_NRKW, tuple(dict.fromkeys(asked))
        self.blocks = _blocks(self.asked, z_NRKW.shape[2])

    @abstractmethod
    def total(self, channels: Channels) -> Tensor:
        """F over these channels: N x R x W."""

    @abstractmethod
    def gradient(self, sums: Sequence[tuple[Channels, Tensor | float]], out_NRKW: Tensor) -> None:
        """Write the gradient of sum_j c_j F_j."""

    def members(self, channels: Channels) -> tuple[int, ...]:
        """The blocks that these channels consist of."""
        return _members(channels, self.blocks)

    def scale_blocks(
        self, factors: Sequence[tuple[Channels, Tensor | float]], p_NRKW: Tensor, out_NRKW: Tensor
    ) -> None:
        """Write p times the sum of the factors (N x R x W) that a channel has."""
        total: list[Tensor | float] = [0.0] * len(self.blocks)
        for channels, factor in factors:
            for i in self.members(channels):
                total[i] = total[i] + factor
        for (start, stop), factor in zip(self.blocks, total, strict=True):
            factor = factor[:, :, None] if isinstance(factor, Tensor) else torch.tensor(factor)
            torch.mul(p_NRKW[:, :, start:stop], factor, out=out_NRKW[:, :, start:stop])


class Softmax(Activation):
    """Log-sum-exp of logits that are neither large nor very small: each exponential is taken once."""

    def __init__(self, z_NRKW: Tensor, asked: Sequence[Channels]) -> None:
        super().__init__(z_NRKW, asked)
        self.e_NRKW = z_NRKW.exp_()
        # the sums of all blocks in one product with ones and zeros
        block_NRMW = _membership(self.blocks, z_NRKW.dtype, z_NRKW.device) @ self.e_NRKW
        self.sums = {k: sum(block_NRMW[:, :, i] for i in self.members(k)) for k in self.asked}

    def total(self, channels: Channels) -> Tensor:
        return self.sums[channels].log()

    def gradient(self, sums: Sequence[tuple[Channels, Tensor | float]], out_NRKW: Tensor) -> None:
        factors = [(channels, weight / self.sums[channels]) for channels, weight in sums]
        self.scale_blocks(factors, self.e_NRKW, out_NRKW)


class WideSoftmax(Activation):
    """Log-sum-exp of any logits: each sum has its own maximum."""

    def __init__(self, z_NRKW: Tensor, asked: Sequence[Channels]) -> None:
        super().__init__(z_NRKW, asked)
        self.totals = {
            channels: torch.stack([z_NRKW[:, :, a:b].logsumexp(2) for a, b in channels]).logsumexp(0)
            for channels in self.asked
        }

    def total(self, channels: Channels) -> Tensor:
        return self.totals[channels]

    def gradient(self, sums: Sequence[tuple[Channels, Tensor | float]], out_NRKW: Tensor) -> None:
        out_NRKW.zero_()
        for channels, weight in sums:
            weight_NR1W = weight[:, :, None] if isinstance(weight, Tensor) else weight
            for start, stop in channels:
                share = (self.z_NRKW[:, :, start:stop] - self.totals[channels][:, :, None]).exp_()
                out_NRKW[:, :, start:stop] += share.mul_(weight_NR1W)


class Sigmoid(Activation):
    """Sums of softplus."""

    def __init__(self, z_NRKW: Tensor, asked: Sequence[Channels]) -> None:
        super().__init__(z_NRKW, asked)
        block = [F.softplus(z_NRKW[:, :, start:stop]).sum(2) for start, stop in self.blocks]
        self.totals = {channels: sum(block[i] for i in self.members(channels)) for channels in self.asked}
        self.p_NRKW = z_NRKW.sigmoid_()

    def total(self, channels: Channels) -> Tensor:
        return self.totals[channels]

    def gradient(self, sums: Sequence[tuple[Channels, Tensor | float]], out_NRKW: Tensor) -> None:
        self.scale_blocks(sums, self.p_NRKW, out_NRKW)
