"""Pixel losses and their gradients from one pass over strips (strips.py); several terms share the pass.

Every pixel loss here is, with weights c and targets t that do not depend on the logits z,
    sum over pixels of   sum_j c_j F_j(z)  -  sum_k t_k z_k                                                (*)
where F_j is the log-sum-exp over some channels (softmax losses) or their sum of softplus (binary losses). So
the gradient is c_j softmax - t or c_j sigmoid - t: it costs no more than the value, and nothing has to be
remembered. The targets are the labels (one channel per pixel) or the teacher's probabilities; those enter
through the map alone: sum_k t_k z_k over pixels equals the product of the map with the targets brought
back to it.

Shapes: B batch, K channels, O of the teacher, S of them targets, h x w map (the teacher's may have another
height, g, and width), H x W labels; a strip is N x R x K x W.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from segue.losses.strips import Cutting, Resampling, wide

Channels = tuple[tuple[int, int], ...]
"""ranges of channels, from and to"""

MARGIN = 8.0
"""of logits that an exponential may still lose before it vanishes"""


@dataclass(frozen=True)
class Strip:
    """Where a strip lies, and what the teacher takes for background there."""

    images: slice
    rows: slice
    dtype: torch.dtype
    background_NRW: Tensor | None
    """its probability"""

    def of(self, labels_BHW: Tensor) -> Tensor:
        return labels_BHW[self.images, self.rows]


@dataclass(frozen=True)
class Parts:
    """A term on a strip, as in (*)."""

    sums: Sequence[tuple[Channels, Tensor | float]]
    """channels of F_j, weights c_j (N x R x W or fewer)"""
    labels: tuple[Tensor, Tensor] | None = None
    """the channel of each pixel's target, and its weight: N x R x W both"""


class Term(ABC):
    """A pixel loss in the form of (*)."""

    soft: tuple[int, int] | None = None
    """channels whose targets are the teacher's probabilities"""
    divisor: float = 1.0
    """beside the number of pixels"""

    @abstractmethod
    def parts(self, strip: Strip) -> Parts: ...


def softmax_losses(
    logits_BKhw: Tensor, terms: Sequence[Term], size: tuple[int, int], old_logits_BOhw: Tensor | None = None
) -> tuple[Tensor, ...]:
    """The terms' means over pixels; differentiable with respect to the logits."""
    return _losses(logits_BKhw, terms, size, old_logits_BOhw, binary=False)


def binary_losses(
    logits_BKhw: Tensor, terms: Sequence[Term], size: tuple[int, int], old_logits_BOhw: Tensor | None = None
) -> tuple[Tensor, ...]:
    """The same for terms whose sums are of softplus, and a teacher whose probabilities are sigmoids."""
    return _losses(logits_BKhw, terms, size, old_logits_BOhw, binary=True)


def _losses(
    logits_BKhw: Tensor,
    terms: Sequence[Term],
    size: tuple[int, int],
    old_logits_BOhw: Tensor | None,
    binary: bool,
) -> tuple[Tensor, ...]:
    given = [old_logits_BOhw, *(value for term in terms for value in vars(term).values())]
    if torch.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in given):
        raise ValueError("No gradient flows to the old logits or to weights: detach them.")
    return _OnePass.apply(logits_BKhw, old_logits_BOhw, tuple(terms), tuple(size), binary)


class _OnePass(torch.autograd.Function):
    """Values and gradients at once; the backward pass only weighs the gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        logits_BKhw: Tensor,
        old_logits_BOhw: Tensor | None,
        terms: tuple[Term, ...],
        size: tuple[int, int],
        binary: bool,
    ) -> tuple[Tensor, ...]:
        with torch.autocast(logits_BKhw.device.type, enabled=False):
            map_BKhw = wide(logits_BKhw)
            old_BOhw = None if old_logits_BOhw is None else old_logits_BOhw.to(map_BKhw.dtype)
            run = _Run(map_BKhw, old_BOhw, terms, size, binary, ctx.needs_input_grad[0])
            values, gradients = run.evaluate()
        ctx.dtype = logits_BKhw.dtype
        ctx.save_for_backward(*gradients)
        return values

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *weights: Tensor) -> tuple[Tensor | None, ...]:
        pairs = zip(weights, ctx.saved_tensors, strict=True)
        total = sum(weight * gradient for weight, gradient in pairs)
        return total.to(ctx.dtype), None, None, None, None


class _Run:
    """One pass over all strips."""

    def __init__(
        self,
        map_BKhw: Tensor,
        old_BOhw: Tensor | None,
        terms: tuple[Term, ...],
        size: tuple[int, int],
        binary: bool,
        wants_gradient: bool,
    ) -> None:
        self.terms, self.size, self.wants_gradient = terms, size, wants_gradient
        self.resampling = Resampling(map_BKhw.shape[-2:], size, map_BKhw)
        self.old_resampling = None if old_BOhw is None else Resampling(old_BOhw.shape[-2:], size, old_BOhw)
        self.activation: type[_Activation] = _Sigmoid
        if not binary:
            map_BKhw, bounded = _below_zero(map_BKhw)
            self.activation = _Softmax if bounded else _WideSoftmax
            if old_BOhw is not None:
                old_BOhw, self.old_bounded = _below_zero(old_BOhw)
        self.map_BKhw, self.old_BOhw, self.binary = map_BKhw, old_BOhw, binary
        self.cutting = Cutting(*map_BKhw.shape[:2], size, map_BKhw.device)
        # memory for all strips: fresh pages would cost as much as the work on them
        self.rooms = [map_BKhw.new_empty(self.cutting.elements) for _ in range(2)]
        soft = [term.soft for term in terms if term.soft is not None]
        self.soft = (min(a for a, _ in soft), max(b for _, b in soft)) if soft else None

    def evaluate(self) -> tuple[tuple[Tensor, ...], list[Tensor]]:
        """Values, and gradients if they are wanted, both of means over all pixels."""
        map_BKhw, count = self.map_BKhw, len(self.terms)
        values = map_BKhw.new_zeros(count)
        gradients = [torch.empty_like(map_BKhw) for _ in range(count if self.wants_gradient else 0)]
        for images in self.cutting.groups():
            self._group(images, values, gradients)
        pixels = len(map_BKhw) * math.prod(self.size)
        for gradient, term in zip(gradients, self.terms, strict=False):
            gradient /= pixels * term.divisor
        return tuple(values[i] / (pixels * term.divisor) for i, term in enumerate(self.terms)), gradients

    def _group(self, images: slice, values: Tensor, gradients: list[Tensor]) -> None:
        """Some images, from their map back to it."""
        map_NKhw, resampling = self.map_BKhw[images], self.resampling
        wide_NhKW = resampling.widen(map_NKhw)
        old_NgOW = None if self.old_BOhw is None else self.old_resampling.widen(self.old_BOhw[images])
        back = [torch.zeros_like(wide_NhKW) for _ in gradients]
        target_NhSW = None if self.soft is None else torch.zeros_like(wide_NhKW[:, :, slice(*self.soft)])
        for rows in self.cutting.bands():
            background_NRW = None if old_NgOW is None else self._teacher(old_NgOW, rows, target_NhSW)
            strip = Strip(images, rows, map_NKhw.dtype, background_NRW)
            self._strip(resampling.strip(wide_NhKW, rows, self.rooms[0]), strip, values, back)
        for gradient, wide_back in zip(gradients, back, strict=True):
            gradient[images] = resampling.narrow(wide_back)
        if self.soft is not None:
            self._subtract_targets(resampling.narrow(target_NhSW), images, values, gradients)

    def _teacher(self, old_NgOW: Tensor, rows: slice, target_NhSW: Tensor) -> Tensor:
        """Bring its probabilities on some rows back to the map; returns that of background."""
        old_NROW = self.old_resampling.strip(old_NgOW, rows, self.rooms[1])
        if self.binary:
            old_NROW.sigmoid_()
        elif self.old_bounded:
            old_NROW.exp_().mul_(old_NROW.sum(2, keepdim=True).reciprocal_())
        else:
            old_NROW = old_NROW.softmax(2)
        self.resampling.add_back(target_NhSW, old_NROW[:, :, slice(*self.soft)], rows)
        return old_NROW[:, :, 0].clone()  # the rest is not needed any more

    def _strip(self, z_NRKW: Tensor, strip: Strip, values: Tensor, back: list[Tensor]) -> None:
        """All terms on one strip."""
        parts = [term.parts(strip) for term in self.terms]
        # pixel by pixel first: sums over pixels would be large, and their difference inexact
        losses = [0.0 if part.labels is None else -_own(z_NRKW, *part.labels) for part in parts]
        activated = self.activation(z_NRKW, [channels for part in parts for channels, _ in part.sums])
        out_NRKW = self.rooms[1][: z_NRKW.numel()].view_as(z_NRKW)
        for i, part in enumerate(parts):
            values[i] += sum((activated.total(k) * weight for k, weight in part.sums), losses[i]).sum()
            if back:
                activated.gradient(part.sums, out_NRKW)
                if part.labels is not None:
                    index_NRW, weight_NRW = part.labels
                    out_NRKW.scatter_add_(2, index_NRW[:, :, None], -weight_NRW[:, :, None])
                self.resampling.add_back(back[i], out_NRKW, strip.rows)

    def _subtract_targets(
        self, target_NShw: Tensor, images: slice, values: Tensor, gradients: list[Tensor]
    ) -> None:
        """The last sum of (*) for targets of the teacher, on the map."""
        for i, term in enumerate(self.terms):
            if term.soft is None:
                continue
            start, stop = term.soft
            own_NShw = target_NShw[:, start - self.soft[0] : stop - self.soft[0]]
            values[i] -= (own_NShw * self.map_BKhw[images, start:stop]).sum()
            if gradients:
                gradients[i][images, start:stop] -= own_NShw


def _own(z_NRKW: Tensor, index_NRW: Tensor, weight_NRW: Tensor) -> Tensor:
    """The weighted logit of each pixel's label."""
    return z_NRKW.gather(2, index_NRW[:, :, None])[:, :, 0] * weight_NRW


class _Activation(ABC):
    """F_j of (*) on a strip, and their gradient; the strip is used up.

    Channels that always go together are a block: what is asked for is a union of blocks.
    """

    def __init__(self, z_NRKW: Tensor, asked: Sequence[Channels]) -> None:
        """`asked`: the channels of every sum that will be asked for."""
        cuts = {0, z_NRKW.shape[2], *(cut for channels in asked for pair in channels for cut in pair)}
        self.blocks = list(pairwise(sorted(cuts)))
        self.z_NRKW, self.asked = z_NRKW, tuple(dict.fromkeys(asked))

    @abstractmethod
    def total(self, channels: Channels) -> Tensor:
        """F over these channels: N x R x W."""

    @abstractmethod
    def gradient(self, sums: Sequence[tuple[Channels, Tensor | float]], out_NRKW: Tensor) -> None:
        """Write the gradient of sum_j c_j F_j."""

    def members(self, channels: Channels) -> list[int]:
        """The blocks that these channels consist of."""
        return [i for i, (a, b) in enumerate(self.blocks) if any(s <= a and b <= t for s, t in channels)]

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


class _Softmax(_Activation):
    """Log-sum-exp of logits that are neither large nor very small: each exponential is taken once."""

    def __init__(self, z_NRKW: Tensor, asked: Sequence[Channels]) -> None:
        super().__init__(z_NRKW, asked)
        self.e_NRKW = z_NRKW.exp_()
        # the sums of all blocks in one product with ones and zeros
        member_MK = z_NRKW.new_zeros(len(self.blocks), z_NRKW.shape[2])
        for row, (start, stop) in zip(member_MK, self.blocks, strict=True):
            row[start:stop] = 1
        block_NRMW = member_MK @ self.e_NRKW
        self.sums = {k: sum(block_NRMW[:, :, i] for i in self.members(k)) for k in self.asked}

    def total(self, channels: Channels) -> Tensor:
        return self.sums[channels].log()

    def gradient(self, sums: Sequence[tuple[Channels, Tensor | float]], out_NRKW: Tensor) -> None:
        factors = [(channels, weight / self.sums[channels]) for channels, weight in sums]
        self.scale_blocks(factors, self.e_NRKW, out_NRKW)


class _WideSoftmax(_Activation):
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


class _Sigmoid(_Activation):
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


def _below_zero(map_BKhw: Tensor) -> tuple[Tensor, bool]:
    """The map with each place's largest logit at zero, and whether no exponential of it can vanish.

    No softmax loss changes by that. Upsampling mixes places, so sums stay below K, and above the smallest
    exponential on the map. Asking for it would make an accelerator wait.
    """
    map_BKhw = map_BKhw - map_BKhw.amax(1, keepdim=True)
    if map_BKhw.device.type != "cpu":
        return map_BKhw, False
    return map_BKhw, bool(map_BKhw.amin() > math.log(torch.finfo(map_BKhw.dtype).tiny) + MARGIN)
