"""Losses of STAR (Chen et al., NeurIPS 2023) on features: held where the teacher knows them, apart from what
is kept, and sure (Adapter, AAAI 2025).

Shapes: B batch, F channels of the head's map h, h x w, n new classes, J kept directions, M scores.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from segue.losses._strips import wide

LEAST_DISTANCE = 1e-3


def no_new_class(scores_NM: Tensor) -> Tensor:
    """Binary cross-entropy of scores that should all be "no", summed over classes: one value per place."""
    return F.softplus(wide(scores_NM)).sum(1)


def shrunk(mask_BHW: Tensor, map_BFhw: Tensor) -> Tensor:
    """A mask at the size of a map, bilinearly: B x h x w."""
    resized = F.interpolate(
        mask_BHW[:, None].to(wide(map_BFhw).dtype), map_BFhw.shape[-2:], mode="bilinear", align_corners=False
    )
    return resized[:, 0]


def held_features(h_BFhw: Tensor, old_h_BFhw: Tensor, weight_Bhw: Tensor) -> Tensor:
    """Mean squared distance to the teacher's features under a weight; nothing where nothing is weighed."""
    squares_Bhw = (wide(h_BFhw) - wide(old_h_BFhw)).square().sum(1)
    return (weight_Bhw * squares_Bhw).sum() / (weight_Bhw.sum() * h_BFhw.shape[1]).clamp_min(1)


def likeness(h_BFhw: Tensor, weight_nBhw: Tensor, kept_JF: Tensor) -> Tensor:
    """1 / distance of each new class in the batch to the nearest kept direction, averaged over these classes.

    The direction of a class is that of its features' sum, each of length 1.
    """
    unit_BFhw = F.normalize(wide(h_BFhw), dim=1)
    sums_nF = torch.einsum("nbhw,bfhw->nf", weight_nBhw.to(unit_BFhw.dtype), unit_BFhw)
    there_n = weight_nBhw.sum((1, 2, 3)) > 0
    # the square root of a square has no slope at 0: bounded below before, not after
    squares_nJ = (F.normalize(sums_nF, dim=1)[:, None] - kept_JF.to(sums_nF.dtype)).square().sum(2)
    nearest_n = squares_nJ.clamp_min(LEAST_DISTANCE**2).amin(1).rsqrt()
    return (nearest_n * there_n).sum() / there_n.sum().clamp_min(1)


def uncertain(scores_BMhw: Tensor, labels_Bhw: Tensor, sure: float) -> Tensor:
    """Mean squared lack of a margin between the two likeliest classes, where the answer is neither the label
    nor sure. The likeliest is held still."""
    p_BKhw = wide(scores_BMhw).sigmoid()
    if p_BKhw.shape[1] < 2:
        return p_BKhw.sum() * 0
    (top_Bhw, second_Bhw), answer_Bhw = p_BKhw.topk(2, dim=1)[0].unbind(1), p_BKhw.argmax(1) + 1
    answer_Bhw = torch.where(top_Bhw > 0.5, answer_Bhw, 0)
    open_Bhw = (answer_Bhw != labels_Bhw) & (top_Bhw <= sure)
    return ((1 - (top_Bhw.detach() - second_Bhw)) * open_Bhw).square().mean()


def sure_margin(logits_BKhw: Tensor, least: float) -> Tensor:
    """Where the probabilities of the two likeliest classes, background left out, are far apart: B x h x w."""
    p_BMhw = wide(logits_BKhw[:, 1:]).sigmoid()
    top_B2hw = F.pad(p_BMhw, (0, 0, 0, 0, 0, 1)).topk(2, dim=1)[0]
    return top_B2hw[:, 0] - top_B2hw[:, 1] > least
