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
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from segue.losses._activations import Activation, Channels, Sigmoid, Softmax, WideSoftmax
from segue.losses._strips import Cutting, Resampling, wide


@dataclass(frozen=True)
class Strip:
    """Where a strip lies, and what the teacher takes for background there."""

    images: slice
    rows: slice
    dtype: torch.dtype
    background_NRW: Tensor | None
    """probability of background, by the teacher"""

    def of(self, labels_BHW: Tensor) -> Tensor:
        return labels_BHW[self.images, self.rows]


@dataclass(frozen=True)
class Parts:
    """A term on a strip, as in (*)."""

    sums: Sequence[tuple[Channels, Tensor | float]]
    """channels of F_j, weights c_j (N x R x W or fewer)"""
    labels: tuple[Tensor, Tensor] | None = None
    """the channel of each pixel's target, and its weight: N x R x W both"""
    more: Tensor | None = None
    """weight of a further softplus of the target's own logit: N x R x W, in binary losses alone"""


class Term(ABC):
    """A pixel loss in the form of (*)."""

    @property
    def soft(self) -> tuple[int, int] | None:
        """Channels whose targets are the teacher's probabilities."""
        return None

    @property
    def divisor(self) -> float:
        """Divisor of the loss, beside the number of pixels."""
        return 1.0

    @abstractmethod
    def parts(self, strip: Strip) -> Parts: ...

    @abstractmethod
    def check(self, logits_BKhw: Tensor) -> None:
        """Raise if this term cannot belong to these logits."""


def softmax_losses(
    logits_BKhw: Tensor, terms: Sequence[Term], size: Sequence[int], old_logits_BOhw: Tensor | None = None
) -> tuple[Tensor, ...]:
    """The terms' means over pixels; differentiable with respect to the logits."""
    return _losses(logits_BKhw, terms, size, old_logits_BOhw, binary=False)


def binary_losses(
    logits_BKhw: Tensor, terms: Sequence[Term], size: Sequence[int], old_logits_BOhw: Tensor | None = None
) -> tuple[Tensor, ...]:
    """The same for terms whose sums are of softplus, and a teacher whose probabilities are sigmoids."""
    return _losses(logits_BKhw, terms, size, old_logits_BOhw, binary=True)


def _losses(
    logits_BKhw: Tensor,
    terms: Sequence[Term],
    size: Sequence[int],
    old_logits_BOhw: Tensor | None,
    binary: bool,
) -> tuple[Tensor, ...]:
    given = [old_logits_BOhw, *(value for term in terms for value in vars(term).values())]
    if torch.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in given):
        raise ValueError("No gradient flows to the old logits or to weights: detach them.")
    if old_logits_BOhw is not None and len(old_logits_BOhw) != len(logits_BKhw):
        raise ValueError(f"{len(logits_BKhw)} maps of logits, but {len(old_logits_BOhw)} of old ones.")
    for term in terms:
        term.check(logits_BKhw)
    wants_gradient = torch.is_grad_enabled() and logits_BKhw.requires_grad
    return _OnePass.apply(logits_BKhw, old_logits_BOhw, tuple(terms), tuple(size), binary, wants_gradient)


class _OnePass(torch.autograd.Function):
    """Values and gradients at once; the backward pass only weighs the gradients. There is no second one."""

    @staticmethod
    def forward(
        ctx: Any,
        logits_BKhw: Tensor,
        old_logits_BOhw: Tensor | None,
        terms: tuple[Term, ...],
        size: Sequence[int],
        binary: bool,
        wants_gradient: bool,
    ) -> tuple[Tensor, ...]:
        with torch.autocast(logits_BKhw.device.type, enabled=False):
            map_BKhw = wide(logits_BKhw)
            old_BOhw = None if old_logits_BOhw is None else old_logits_BOhw.to(map_BKhw.dtype)
            run = _Run(map_BKhw, old_BOhw, terms, size, binary, wants_gradient)
            values, gradients = run.evaluate()
        ctx.save_for_backward(*gradients)
        return values

    @staticmethod
    def backward(ctx: Any, *weights: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # create_graph: the gradient would pass for a constant
            raise RuntimeError("Pixel losses have no second derivatives.")
        pairs = zip(weights, ctx.saved_tensors, strict=True)
        return sum(weight * gradient for weight, gradient in pairs), None, None, None, None, None


class _Run:
    """One pass over all strips."""

    def __init__(
        self,
        map_BKhw: Tensor,
        old_BOhw: Tensor | None,
        terms: tuple[Term, ...],
        size: Sequence[int],
        binary: bool,
        wants_gradient: bool,
    ) -> None:
        self.terms, self.size, self.wants_gradient = terms, size, wants_gradient
        self.resampling = Resampling(map_BKhw.shape[-2:], size, map_BKhw)
        self.old_resampling = None if old_BOhw is None else Resampling(old_BOhw.shape[-2:], size, old_BOhw)
        self.activation: type[Activation] = Sigmoid
        if not binary:
            map_BKhw, bounded = _below_zero(map_BKhw)
            self.activation = Softmax if bounded else WideSoftmax
            if old_BOhw is not None:
                old_BOhw, self.old_bounded = _below_zero(old_BOhw)
        self.map_BKhw, self.old_BOhw, self.binary = map_BKhw, old_BOhw, binary
        self.cutting = Cutting(len(map_BKhw), map_BKhw.shape[1], size, map_BKhw.device)
        # memory for all strips: fresh pages would cost as much as the work on them
        self.rooms = [map_BKhw.new_empty(self.cutting.elements) for _ in range(2)]
        soft = [i for i, term in enumerate(terms) if term.soft is not None]
        assert len(soft) <= 1, "one term of a pass at most has the teacher's targets"
        self.taught = soft[0] if soft else None
        self.soft = terms[soft[0]].soft if soft else None

    def evaluate(self) -> tuple[tuple[Tensor, ...], list[Tensor]]:
        """Values, and gradients if they are wanted, both of means over all pixels."""
        map_BKhw, count = self.map_BKhw, len(self.terms)
        values: list[list[Tensor]] = [[] for _ in range(count)]
        gradients = [torch.empty_like(map_BKhw) for _ in range(count if self.wants_gradient else 0)]
        for images in self.cutting.groups():
            self._group(images, values, gradients)
        pixels = len(map_BKhw) * math.prod(self.size)
        for gradient, term in zip(gradients, self.terms, strict=False):
            gradient /= pixels * term.divisor
        totals = (torch.stack(own).sum() for own in values)
        pairs = zip(totals, self.terms, strict=True)
        return tuple(total / (pixels * term.divisor) for total, term in pairs), gradients

    def _group(self, images: slice, values: list[list[Tensor]], gradients: list[Tensor]) -> None:
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
        return old_NROW[:, :, 0].clone()  # the memory of the rest is used again

    def _strip(self, z_NRKW: Tensor, strip: Strip, values: list[list[Tensor]], back: list[Tensor]) -> None:
        """All terms on one strip."""
        parts = [term.parts(strip) for term in self.terms]
        # pixel by pixel first: sums over pixels would be large, and their difference inexact
        own = [None if part.labels is None else _own(z_NRKW, part.labels[0]) for part in parts]
        losses = [_labelled(part, z_NRW) for part, z_NRW in zip(parts, own, strict=True)]
        activated = self.activation(z_NRKW, [channels for part in parts for channels, _ in part.sums])
        out_NRKW = self.rooms[1][: z_NRKW.numel()].view_as(z_NRKW)
        for i, part in enumerate(parts):
            loss_NRW = sum((activated.total(k) * weight for k, weight in part.sums), losses[i])
            values[i].append(loss_NRW.sum())
            if back:
                activated.gradient(part.sums, out_NRKW)
                if part.labels is not None:
                    index_NRW, weight_NRW = part.labels
                    if part.more is not None:
                        weight_NRW = weight_NRW - part.more * own[i].sigmoid()
                    out_NRKW.scatter_add_(2, index_NRW[:, :, None], -weight_NRW[:, :, None])
                self.resampling.add_back(back[i], out_NRKW, strip.rows)

    def _subtract_targets(
        self, target_NShw: Tensor, images: slice, values: list[list[Tensor]], gradients: list[Tensor]
    ) -> None:
        """The last sum of (*) for targets of the teacher, on the map."""
        own = slice(*self.soft)
        values[self.taught].append(-(target_NShw * self.map_BKhw[images, own]).sum())
        if gradients:
            gradients[self.taught][images, own] -= target_NShw


def _own(z_NRKW: Tensor, index_NRW: Tensor) -> Tensor:
    """The logit of each pixel's label."""
    return z_NRKW.gather(2, index_NRW[:, :, None])[:, :, 0]


def _labelled(part: Parts, own_NRW: Tensor | None) -> Tensor | float:
    """What a term says of the labels' own logits."""
    if part.labels is None or own_NRW is None:
        return 0.0
    loss_NRW = -own_NRW * part.labels[1]
    return loss_NRW if part.more is None else loss_NRW + part.more * F.softplus(own_NRW)


def _below_zero(map_BKhw: Tensor) -> tuple[Tensor, bool]:
    """The map with each place's largest logit at zero, and whether its exponentials are safe.

    No softmax loss changes by that. Upsampling mixes places, so sums stay below K, and above the smallest
    exponential on the map. Half of the range of exponents is for them, half for weights, which sums divide.
    To ask for the smallest would make an accelerator wait.
    """
    map_BKhw = map_BKhw - map_BKhw.amax(1, keepdim=True)
    if map_BKhw.device.type != "cpu":
        return map_BKhw, False
    return map_BKhw, bool(map_BKhw.amin() > math.log(torch.finfo(map_BKhw.dtype).tiny) / 2)
