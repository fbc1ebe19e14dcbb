"""Losses of MBS, mitigating background shift (Park et al., ECCV 2024).

Shapes: B batch, K channels now, O channels of the teacher (both with background), F channels of a map,
h x w at the model's stride, H x W at the labels' resolution.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from segue.losses._one_pass import Parts, Strip, Term, softmax_losses
from segue.losses._strips import pixel_answers, wide
from segue.losses.pixel import IGNORE


@dataclass(frozen=True, eq=False)
class LabelGuidedDistillation(Term):
    """The teacher's probabilities as targets; a new class's pixels take that of its background."""

    labels_BHW: Tensor
    num_channels: int
    num_old: int

    def check(self, logits_BKhw: Tensor) -> None:
        if len(self.labels_BHW) != len(logits_BKhw):
            raise ValueError(f"There are {len(self.labels_BHW)} labels, not {len(logits_BKhw)}.")

    @property
    def soft(self) -> tuple[int, int]:
        return 1, self.num_old

    @property
    def divisor(self) -> float:
        return self.num_channels

    def parts(self, strip: Strip) -> Parts:
        labels_NRW = strip.of(self.labels_BHW).long()
        new_NRW = (labels_NRW >= self.num_old) & (labels_NRW != IGNORE)
        assert strip.background_NRW is not None, "a pass with this term has a teacher"
        return Parts([(((0, self.num_channels),), 1.0)], (labels_NRW.where(new_NRW, 0), strip.background_NRW))


def label_guided_distillation(logits_BKhw: Tensor, old_logits_BOhw: Tensor, labels_BHW: Tensor) -> Tensor:
    """Cross-entropy with the teacher, whose background means the new class where one is labelled.

    The mean runs over pixels and channels, so it shrinks as classes arrive: the published weights belong to
    that.
    """
    term = LabelGuidedDistillation(labels_BHW, logits_BKhw.shape[1], old_logits_BOhw.shape[1])
    return softmax_losses(logits_BKhw, [term], labels_BHW.shape[-2:], old_logits_BOhw)[0]


def selective_labels(labels_BHW: Tensor, old_logits_BOhw: Tensor, least: float) -> Tensor:
    """Labels with the teacher's answer where it is sure that background is an old class.

    What is left of background is ignored where the teacher believes more in the old classes together than in
    background.
    """

    def answer(z_NROW: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        best_NRW, index_NRW = z_NROW.max(2)
        total_NRW = z_NROW.logsumexp(2)
        return (best_NRW - total_NRW).exp(), index_NRW, (z_NROW[:, :, 0] - total_NRW).exp()

    best_BHW, answer_BHW, background_BHW = pixel_answers(old_logits_BOhw, labels_BHW.shape[-2:], answer)
    labels_BHW, unlabelled_BHW = labels_BHW.long(), labels_BHW == 0
    sure_BHW = unlabelled_BHW & (answer_BHW > 0) & (best_BHW >= least)
    doubtful_BHW = unlabelled_BHW & ~sure_BHW & (background_BHW < 0.5)
    return answer_BHW.where(sure_BHW, labels_BHW).masked_fill(doubtful_BHW, IGNORE)


def adaptive_distance(
    h_BFhw: Tensor, old_h_BFhw: Tensor, labels_Bhw: Tensor, old_logits_BOhw: Tensor
) -> Tensor:
    """Squared distance to the teacher's features, weighted place by place, over the entries that count.

    Old classes count whole, new classes and ignored places not at all, and background as far as the teacher
    takes it for background.
    """
    num_old = old_logits_BOhw.shape[1]
    background_Bhw = wide(old_logits_BOhw).softmax(1)[:, 0]
    known_Bhw = (labels_Bhw > 0) & (labels_Bhw < num_old)
    weight_Bhw = torch.where(labels_Bhw == 0, background_Bhw, known_Bhw.to(background_Bhw.dtype))
    squares_Bhw = (wide(h_BFhw) - wide(old_h_BFhw)).square().sum(1)
    entries = (weight_Bhw > 0).sum() * h_BFhw.shape[1]
    return (weight_Bhw * squares_Bhw).sum() / entries.clamp_min(1)


def orthogonality(weights_KF: Tensor, num_old: int) -> Tensor:
    """How alike the classifiers of new classes are to all others: mean |cosine|, times the new share.

    The other one of each pair is held still.
    """
    rows_KF = F.normalize(wide(weights_KF), dim=1)
    alike_NK = (rows_KF[num_old:] @ rows_KF.detach().t()).abs()
    itself_NK = torch.arange(len(rows_KF), device=rows_KF.device)
    others_NK = itself_NK[num_old:, None] != itself_NK
    counted_NK = others_NK & (alike_NK > 0)
    mean = (alike_NK * counted_NK).sum() / counted_NK.sum().clamp_min(1)
    return mean * (len(rows_KF) - num_old) / len(rows_KF)
