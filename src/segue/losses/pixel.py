"""Losses on pixels: cross-entropy and distillation, plain, binary, and with a background that changes its
meaning.

Shapes: B batch, K channels now, O channels of the teacher (both with background), h x w at the model's
stride, H x W at the labels' resolution. Every mean runs over *all* pixels: ignored pixels count in the
denominator, as in the code behind the published numbers. `distillation` is that of LwF and ILT as MiB runs
them, the binary pair that of LwF-MC. The unbiased losses are those of MiB (Cermelli et al. 2020). CAF (Yang
et al. 2022) takes them over as L_SEG (eq. 14-15) and, with a background weight gamma (eq. 11), as L_D (eq.
12).

Cross-entropies take class weights, or balance the classes where the run says so (balance.py). Where the
network knows no background (unlabelled.py), label 0 means "any old class" in all of them, and the unbiased
distillation compares the old classes among themselves: no channel of the teacher can stand for a new class.

Each loss is a `Term` in the form of one_pass.py; terms that are asked for together share a pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from segue.losses._one_pass import Parts, Strip, Term, binary_losses, softmax_losses
from segue.losses._strips import wide
from segue.losses.balance import EXPONENT, classes_are_balanced
from segue.losses.unlabelled import channels_of_unlabelled

IGNORE = 255
GammaReading = Literal["logit", "ratio", "literal"]


# The terms


@dataclass(frozen=True, eq=False)
class CrossEntropy(Term):
    """The labels' channels against the rest; in a binary pass each channel, background too, by itself."""

    labels_BHW: Tensor
    num_channels: int
    class_weight_K: Tensor | None = None
    image_weight_B: Tensor | None = None
    num_unlabelled: int = 0
    """number of channels that label 0 stands for together; 0: it is a channel like any other"""

    def check(self, logits_BKhw: Tensor) -> None:
        _as_many("labels", self.labels_BHW, len(logits_BKhw))
        if self.class_weight_K is not None:
            _as_many("class weights", self.class_weight_K, self.num_channels)
        if self.image_weight_B is not None:
            _as_many("image weights", self.image_weight_B, len(logits_BKhw))

    def parts(self, strip: Strip) -> Parts:
        index_NRW, weight_NRW = _targets(strip.of(self.labels_BHW), strip.dtype)
        if self.class_weight_K is not None:
            weight_NRW = weight_NRW * self.class_weight_K[index_NRW]
        if self.image_weight_B is not None:
            weight_NRW = weight_NRW * self.image_weight_B[strip.images, None, None]
        weight_NRW = weight_NRW.to(strip.dtype)
        whole = (((0, self.num_channels),), weight_NRW)
        if not self.num_unlabelled:
            return Parts([whole], (index_NRW, weight_NRW))
        told_NRW = weight_NRW * (strip.of(self.labels_BHW) != 0)
        return Parts([whole, (((0, self.num_unlabelled),), told_NRW - weight_NRW)], (index_NRW, told_NRW))


@dataclass(frozen=True, eq=False)
class UnbiasedCrossEntropy(Term):
    """The label background means "background or any old class" (CAF eq. 14-15).

    In images of earlier steps it means "background or any new class" (MiB-AugM, arXiv 2405.09858).
    """

    labels_BHW: Tensor
    num_channels: int
    num_old: int
    class_weight_K: Tensor | None = None
    earlier_B: Tensor | None = None

    def check(self, logits_BKhw: Tensor) -> None:
        _as_many("labels", self.labels_BHW, len(logits_BKhw))
        if not 1 <= self.num_old <= self.num_channels:
            raise ValueError(f"There are {self.num_channels} channels, so {self.num_old} cannot be old.")

    def parts(self, strip: Strip) -> Parts:
        labels_NRW = strip.of(self.labels_BHW)
        index_NRW, counts_NRW = _targets(labels_NRW, strip.dtype)
        if self.class_weight_K is not None:
            counts_NRW = (counts_NRW * self.class_weight_K[index_NRW]).to(strip.dtype)
        whole, old = ((0, self.num_channels),), ((0, self.num_old),)
        new_NRW = counts_NRW * (labels_NRW >= self.num_old)
        if self.earlier_B is None:
            return Parts([(whole, counts_NRW), (old, new_NRW - counts_NRW)], (index_NRW, new_NRW))
        earlier_N11 = self.earlier_B[strip.images, None, None]
        told_NRW = torch.where(earlier_N11, counts_NRW * (labels_NRW != 0), new_NRW)
        untold_NRW, merged = told_NRW - counts_NRW, ((0, 1), (self.num_old, self.num_channels))
        sums = [(whole, counts_NRW), (old, untold_NRW * ~earlier_N11), (merged, untold_NRW * earlier_N11)]
        return Parts(sums, (index_NRW, told_NRW))


@dataclass(frozen=True, eq=False)
class Distillation(Term):
    """The old channels against the teacher's: among themselves or, in a binary pass, each by itself."""

    num_old: int

    def check(self, logits_BKhw: Tensor) -> None:
        if self.num_old > logits_BKhw.shape[1]:
            raise ValueError(f"The teacher has {self.num_old} channels, the student {logits_BKhw.shape[1]}.")

    @property
    def soft(self) -> tuple[int, int]:
        return 0, self.num_old

    @property
    def divisor(self) -> float:
        return self.num_old

    def parts(self, strip: Strip) -> Parts:
        return Parts([((self.soft,), 1.0)])


@dataclass(frozen=True, eq=False)
class UnbiasedDistillation(Term):
    """The teacher's background means "background or any new class" (CAF eq. 9-10), with a weight (eq. 12)."""

    num_channels: int
    num_old: int
    background_weight: Tensor | None
    """gamma, one number or one per image"""

    def check(self, logits_BKhw: Tensor) -> None:
        if self.background_weight is not None and self.background_weight.numel() > 1:
            _as_many("background weights", self.background_weight, len(logits_BKhw))

    @property
    def soft(self) -> tuple[int, int]:
        return 1, self.num_old

    @property
    def divisor(self) -> float:
        return self.num_old

    def parts(self, strip: Strip) -> Parts:
        background_NRW = strip.background_NRW
        assert background_NRW is not None, "a pass with this term has a teacher"
        kept_NRW = 1 - background_NRW
        if self.background_weight is not None:
            weight = self.background_weight.reshape(-1, 1, 1)
            background_NRW = background_NRW * (weight if len(weight) == 1 else weight[strip.images])
        whole, merged = ((0, self.num_channels),), ((0, 1), (self.num_old, self.num_channels))
        return Parts([(whole, kept_NRW + background_NRW), (merged, -background_NRW)])


def _as_many(name: str, values: Tensor, count: int) -> None:
    if len(values) != count:
        raise ValueError(f"There are {len(values)} {name}, not {count}.")


def _targets(labels_NRW: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Each pixel's channel, and 1 where it counts; ignored pixels have channel 0 and do not."""
    ignored_NRW = labels_NRW == IGNORE
    return labels_NRW.long().masked_fill(ignored_NRW, 0), (~ignored_NRW).to(dtype)


def _labelled(
    labels_BHW: Tensor,
    num_channels: int,
    class_weight_K: Tensor | None = None,
    image_weight_B: Tensor | None = None,
) -> CrossEntropy:
    if class_weight_K is None and classes_are_balanced():
        class_weight_K = class_balance(labels_BHW, num_channels, EXPONENT)
    if (num_old := channels_of_unlabelled()) == 1:
        labels_BHW = labels_BHW.masked_fill(labels_BHW == 0, IGNORE)
    return CrossEntropy(
        labels_BHW, num_channels, class_weight_K, image_weight_B, num_old if num_old > 1 else 0
    )


def _labelled_unbiased(
    labels_BHW: Tensor, num_channels: int, num_old: int, earlier_B: Tensor | None = None
) -> UnbiasedCrossEntropy:
    """With balance, all labels that mean "background or any old class" are one class."""
    if num_old == channels_of_unlabelled() == 1:
        labels_BHW = labels_BHW.masked_fill(labels_BHW == 0, IGNORE)
    if not classes_are_balanced():
        return UnbiasedCrossEntropy(labels_BHW, num_channels, num_old, earlier_B=earlier_B)
    merged_BHW = labels_BHW.masked_fill(labels_BHW < num_old, 0)
    weight_K = class_balance(merged_BHW, num_channels, EXPONENT)
    weight_K[:num_old] = weight_K[0].clone()
    return UnbiasedCrossEntropy(labels_BHW, num_channels, num_old, weight_K, earlier_B)


# The losses


def cross_entropy(
    logits_BKhw: Tensor,
    labels_BHW: Tensor,
    class_weight_K: Tensor | None = None,
    image_weight_B: Tensor | None = None,
) -> Tensor:
    """Softmax cross-entropy, labels 255 ignored; classes and images may have weights."""
    term = _labelled(labels_BHW, logits_BKhw.shape[1], class_weight_K, image_weight_B)
    return softmax_losses(logits_BKhw, [term], labels_BHW.shape[-2:])[0]


def class_balance(labels_BHW: Tensor, num_channels: int, exponent: float) -> Tensor:
    """Weights of the classes in a batch, by a power of how seldom they are; a pixel's weight is 1 on average.

    0 leaves the classes as frequent as they are, 1 gives each that is there the same weight in all.
    """
    rows_N = labels_BHW.masked_fill(labels_BHW == IGNORE, num_channels).flatten().long()
    counts_K = rows_N.new_zeros(num_channels + 1).index_add(0, rows_N, torch.ones_like(rows_N))[:num_channels]
    weights_K = counts_K.clamp_min(1).to(torch.get_default_dtype()) ** -exponent
    return weights_K * (counts_K.sum() / (counts_K * weights_K).sum().clamp_min(1.0))


def binary_cross_entropy(logits_BKhw: Tensor, labels_BHW: Tensor) -> Tensor:
    """Each channel, background too, against the rest: summed over channels, labels 255 ignored."""
    term = _labelled(labels_BHW, logits_BKhw.shape[1])
    return binary_losses(logits_BKhw, [term], labels_BHW.shape[-2:])[0]


def distillation(logits_BKhw: Tensor, old_logits_BOhw: Tensor, size: Sequence[int] | None = None) -> Tensor:
    """Cross-entropy of the old channels, among themselves, with the teacher's; divided by their number."""
    term = Distillation(old_logits_BOhw.shape[1])
    return softmax_losses(logits_BKhw, [term], size or logits_BKhw.shape[-2:], old_logits_BOhw)[0]


def binary_distillation(
    logits_BKhw: Tensor, old_logits_BOhw: Tensor, size: Sequence[int] | None = None
) -> Tensor:
    """Binary cross-entropy of every old channel with the teacher's probability, averaged over channels."""
    term = Distillation(old_logits_BOhw.shape[1])
    return binary_losses(logits_BKhw, [term], size or logits_BKhw.shape[-2:], old_logits_BOhw)[0]


def unbiased_cross_entropy(logits_BKhw: Tensor, labels_BHW: Tensor, num_old: int) -> Tensor:
    """Cross-entropy in which the label background means "background or any old class" (CAF eq. 14-15).

    `num_old` counts the old channels with background; labels below it are background. 1: plain cross-entropy.
    """
    term = _labelled_unbiased(labels_BHW, logits_BKhw.shape[1], num_old)
    return softmax_losses(logits_BKhw, [term], labels_BHW.shape[-2:])[0]


def unbiased_distillation(
    logits_BKhw: Tensor,
    old_logits_BOhw: Tensor,
    background_weight: Tensor | float | None = None,
    size: Sequence[int] | None = None,
) -> Tensor:
    """Distillation in which the teacher's background means "background or any new class" (CAF eq. 9-10).

    `background_weight` is gamma of CAF eq. 11-12, a number or one per image; None is MiB. With `size` both
    maps are upsampled first. The sum over classes is divided by their number, as in the authors' code: the
    published weights (10, 100) belong to that.
    """
    term = _unbiased(logits_BKhw, old_logits_BOhw, background_weight)
    return softmax_losses(logits_BKhw, [term], size or logits_BKhw.shape[-2:], old_logits_BOhw)[0]


def incremental_losses(
    logits_BKhw: Tensor,
    old_logits_BOhw: Tensor,
    labels_BHW: Tensor,
    num_old: int,
    background_weight: Tensor | float | None = None,
    earlier_B: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """`unbiased_cross_entropy` and `unbiased_distillation` at the labels' resolution, from one pass.

    `earlier_B` marks images of earlier steps, whose background may be a new class but is no old one.
    """
    labelled = _labelled_unbiased(labels_BHW, logits_BKhw.shape[1], num_old, earlier_B)
    distilled = _unbiased(logits_BKhw, old_logits_BOhw, background_weight)
    terms = labelled, distilled
    ce, kd = softmax_losses(logits_BKhw, terms, labels_BHW.shape[-2:], old_logits_BOhw)
    return ce, kd


def distilled_cross_entropy(
    logits_BKhw: Tensor, old_logits_BOhw: Tensor, labels_BHW: Tensor
) -> tuple[Tensor, Tensor]:
    """`cross_entropy` and `distillation` at the labels' resolution, from one pass."""
    terms = _labelled(labels_BHW, logits_BKhw.shape[1]), Distillation(old_logits_BOhw.shape[1])
    ce, kd = softmax_losses(logits_BKhw, terms, labels_BHW.shape[-2:], old_logits_BOhw)
    return ce, kd


def distilled_binary_cross_entropy(
    logits_BKhw: Tensor, old_logits_BOhw: Tensor, labels_BHW: Tensor
) -> tuple[Tensor, Tensor]:
    """`binary_cross_entropy` and `binary_distillation` at the labels' resolution, from one pass."""
    terms = _labelled(labels_BHW, logits_BKhw.shape[1]), Distillation(old_logits_BOhw.shape[1])
    ce, kd = binary_losses(logits_BKhw, terms, labels_BHW.shape[-2:], old_logits_BOhw)
    return ce, kd


def _unbiased(logits_BKhw: Tensor, old_logits_BOhw: Tensor, background_weight: Tensor | float | None) -> Term:
    num_channels, num_old = logits_BKhw.shape[1], old_logits_BOhw.shape[1]
    if num_old >= num_channels:
        raise ValueError(
            f"Unbiased distillation needs new classes: {num_old} old of {num_channels} channels."
        )
    if channels_of_unlabelled():
        return Distillation(num_old)
    if background_weight is not None:
        dtype = wide(logits_BKhw).dtype
        background_weight = torch.as_tensor(background_weight, dtype=dtype, device=logits_BKhw.device)
    return UnbiasedDistillation(num_channels, num_old, background_weight)


def background_balance(old_logits_BOhw: Tensor, reading: GammaReading = "logit") -> Tensor:
    """gamma of CAF eq. 11: foreground to background as the teacher sees it, one number per image.

    `logit` pools logits and takes the softmax (the released code); `ratio` averages the probabilities (what
    the text describes); `literal` takes the softmax of averaged probabilities (the equation as printed). All
    of it at the model's stride.
    """
    old_BOhw = wide(old_logits_BOhw)
    if reading == "logit":
        pooled_BO = old_BOhw.mean((2, 3))
    elif reading == "ratio":
        pooled_BO = old_BOhw.softmax(1).mean((2, 3)).clamp_min(torch.finfo(old_BOhw.dtype).tiny).log()
    else:
        pooled_BO = old_BOhw.softmax(1).mean((2, 3))
    # sum of the others' softmax over background's: the partition function cancels
    log_gamma_B = pooled_BO[:, 1:].logsumexp(1) - pooled_BO[:, 0]
    return log_gamma_B.clamp_max(math.log(torch.finfo(log_gamma_B.dtype).max) / 2).exp()  # never infinite
