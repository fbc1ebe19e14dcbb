"""Losses of heads without a background channel: every class by itself, against the rest (DKD, Baek et al.,
NeurIPS 2022).

Shapes: B batch, M scores now, O scores of the teacher (neither with background), F channels of the head's map
h, h x w at the model's stride, H x W at the labels' resolution. A score is the logit of one class against all
else: score m belongs to label m + 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from segue.losses._one_pass import Parts, Strip, Term, binary_losses
from segue.losses._strips import wide
from segue.losses.balance import EXPONENT, classes_are_balanced
from segue.losses.pixel import Distillation, class_balance


@dataclass(frozen=True, eq=False)
class NewClasses(Term):
    """The scores from `first` on against the labels; any other label, 255 too, is a "no" for all of them."""

    labels_BHW: Tensor
    first: int
    num_scores: int
    positive_weight: float
    class_weight_K: Tensor | None = None
    """weight of pixels by their label, that of background first"""

    def check(self, logits_BKhw: Tensor) -> None:
        if len(self.labels_BHW) != len(logits_BKhw):
            raise ValueError(f"There are {len(self.labels_BHW)} labels, not {len(logits_BKhw)}.")

    def parts(self, strip: Strip) -> Parts:
        labels_NRW = strip.of(self.labels_BHW).long()
        new_NRW = (labels_NRW > self.first) & (labels_NRW <= self.num_scores)
        index_NRW = (labels_NRW - 1).where(new_NRW, self.first)
        yes_NRW = new_NRW.to(strip.dtype)
        weight_NRW: Tensor | float = 1.0
        if self.class_weight_K is not None:
            weight_NRW = self.class_weight_K[labels_NRW.where(new_NRW, 0)].to(strip.dtype)
            yes_NRW = yes_NRW * weight_NRW
        sums = [(((self.first, self.num_scores),), weight_NRW)]
        more_NRW = None if self.positive_weight == 1 else (self.positive_weight - 1) * yes_NRW
        return Parts(sums, (index_NRW, self.positive_weight * yes_NRW), more_NRW)


def _new_classes(scores_BMhw: Tensor, labels_BHW: Tensor, num_old: int, positive: float) -> NewClasses:
    """With balance, all labels that are no new class are one class."""
    num_scores, weight_K = scores_BMhw.shape[1], None
    if classes_are_balanced():
        new_BHW = (labels_BHW > num_old) & (labels_BHW <= num_scores)
        weight_K = class_balance(labels_BHW.where(new_BHW, 0), num_scores + 1, EXPONENT)
    return NewClasses(labels_BHW, num_old, num_scores, positive, weight_K)


def class_scores(
    scores_BMhw: Tensor, labels_BHW: Tensor, num_old: int = 0, positive_weight: float = 1.0
) -> Tensor:
    """Binary cross-entropy of the new classes, summed over them: mean over all pixels.

    `num_old` counts the old scores, which have no part. `positive_weight` multiplies the "yes" of a class.
    """
    term = _new_classes(scores_BMhw, labels_BHW, num_old, positive_weight)
    return binary_losses(scores_BMhw, [term], labels_BHW.shape[-2:])[0]


def distilled_class_scores(
    scores_BMhw: Tensor, old_scores_BOhw: Tensor, labels_BHW: Tensor, positive_weight: float = 1.0
) -> tuple[Tensor, Tensor]:
    """`class_scores` of the new classes, and the distillation of the old ones summed over them: one pass."""
    num_old = old_scores_BOhw.shape[1]
    terms = _new_classes(scores_BMhw, labels_BHW, num_old, positive_weight), Distillation(num_old)
    labelled, distilled = binary_losses(scores_BMhw, terms, labels_BHW.shape[-2:], old_scores_BOhw)
    return labelled, num_old * distilled


def reasons(h_BFhw: Tensor, weight_MFkk: Tensor, padding: Sequence[int] = (0, 0)) -> tuple[Tensor, Tensor]:
    """What speaks for each class and what speaks against it: the products w h by their sign, summed.

    Together with the bias they are the scores. Where h >= 0, as behind a ReLU, these are the parts of w that
    are positive and negative; a leaky activation has features below zero, too.
    """
    h_BFhw = wide(h_BFhw)
    weight_MFkk = weight_MFkk.to(h_BFhw.dtype)
    above, below = h_BFhw.clamp_min(0), h_BFhw.clamp_max(0)
    plus, minus = weight_MFkk.clamp_min(0), weight_MFkk.clamp_max(0)

    def product(features: Tensor, weight: Tensor) -> Tensor:
        return F.conv2d(features, weight, padding=tuple(padding))

    return product(above, plus) + product(below, minus), product(above, minus) + product(below, plus)


def distilled_reasons(
    reasons_BMhw: tuple[Tensor, Tensor], old_reasons_BMhw: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    """Binary cross-entropy of the reasons for and against with the teacher's, each summed over classes."""
    pair = []
    for ours_BMhw, theirs_BMhw in zip(reasons_BMhw, old_reasons_BMhw, strict=True):
        count = theirs_BMhw.shape[1]
        losses = binary_losses(ours_BMhw, [Distillation(count)], ours_BMhw.shape[-2:], theirs_BMhw)
        pair.append(count * losses[0])
    return pair[0], pair[1]
