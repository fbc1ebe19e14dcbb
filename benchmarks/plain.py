"""The pixel losses written the plain way: upsample everything, then let autograd remember what it needs.

The yardstick of `python -m benchmarks`, and what the tests hold the losses of `segue.losses` against.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from segue.losses._strips import upsample
from segue.losses.pixel import IGNORE


def cross_entropy(
    logits_BKhw: Tensor,
    labels_BHW: Tensor,
    class_weight_K: Tensor | None = None,
    image_weight_B: Tensor | None = None,
) -> Tensor:
    logits_BKHW = upsample(logits_BKhw, labels_BHW.shape[-2:])
    loss_BHW = F.cross_entropy(
        logits_BKHW, labels_BHW.long(), class_weight_K, ignore_index=IGNORE, reduction="none"
    )
    weight_B = logits_BKHW.new_ones(len(loss_BHW)) if image_weight_B is None else image_weight_B
    return (loss_BHW.sum((1, 2)) * weight_B).sum() / labels_BHW.numel()


def binary_cross_entropy(logits_BKhw: Tensor, labels_BHW: Tensor) -> Tensor:
    logits_BKHW = upsample(logits_BKhw, labels_BHW.shape[-2:])
    labels_BHW = labels_BHW.long()
    ignored_BHW = labels_BHW == IGNORE
    one_hot_BHWK = F.one_hot(labels_BHW.masked_fill(ignored_BHW, 0), logits_BKHW.shape[1])
    target_BKHW = one_hot_BHWK.permute(0, 3, 1, 2).to(logits_BKHW.dtype)
    loss_BKHW = F.binary_cross_entropy_with_logits(logits_BKHW, target_BKHW, reduction="none")
    return loss_BKHW.sum(1).masked_fill(ignored_BHW, 0.0).mean()


def distillation(logits_BKhw: Tensor, old_logits_BOhw: Tensor, size: tuple[int, int]) -> Tensor:
    logits_BKHW, old_BOHW = upsample(logits_BKhw, size), upsample(old_logits_BOhw, size)
    return -(old_BOHW.softmax(1) * logits_BKHW[:, : old_BOHW.shape[1]].log_softmax(1)).mean()


def binary_distillation(logits_BKhw: Tensor, old_logits_BOhw: Tensor, size: tuple[int, int]) -> Tensor:
    logits_BKHW, old_BOHW = upsample(logits_BKhw, size), upsample(old_logits_BOhw, size)
    return F.binary_cross_entropy_with_logits(logits_BKHW[:, : old_BOHW.shape[1]], old_BOHW.sigmoid())


def unbiased_cross_entropy(logits_BKhw: Tensor, labels_BHW: Tensor, num_old: int) -> Tensor:
    logits_BKHW = upsample(logits_BKhw, labels_BHW.shape[-2:])
    labels_BHW = labels_BHW.long()
    ignored_BHW = labels_BHW == IGNORE
    background_BHW = logits_BKHW[:, :num_old].logsumexp(1)
    index_BHW = labels_BHW.masked_fill(ignored_BHW, 0)
    own_BHW = logits_BKHW.gather(1, index_BHW.unsqueeze(1)).squeeze(1)
    target_BHW = torch.where(labels_BHW < num_old, background_BHW, own_BHW)
    return (logits_BKHW.logsumexp(1) - target_BHW).masked_fill(ignored_BHW, 0.0).mean()


def unbiased_distillation(
    logits_BKhw: Tensor,
    old_logits_BOhw: Tensor,
    background_weight: Tensor | float | None,
    size: tuple[int, int],
) -> Tensor:
    num_old = old_logits_BOhw.shape[1]
    logits_BKHW, old_BOHW = upsample(logits_BKhw, size), upsample(old_logits_BOhw, size)
    target_BOHW = old_BOHW.softmax(1)
    total_BHW = logits_BKHW.logsumexp(1)
    merged_BNHW = torch.cat([logits_BKHW[:, :1], logits_BKHW[:, num_old:]], dim=1)
    background_BHW = target_BOHW[:, 0] * (merged_BNHW.logsumexp(1) - total_BHW)
    kept_BHW = (target_BOHW[:, 1:] * (logits_BKHW[:, 1:num_old] - total_BHW.unsqueeze(1))).sum(1)
    if background_weight is not None:
        weight = torch.as_tensor(background_weight, dtype=background_BHW.dtype)
        background_BHW = background_BHW * weight.reshape(-1, 1, 1)
    return -(background_BHW + kept_BHW).mean() / num_old


def incremental_losses(
    logits_BKhw: Tensor,
    old_logits_BOhw: Tensor,
    labels_BHW: Tensor,
    num_old: int,
    background_weight: Tensor | float | None = None,
) -> tuple[Tensor, Tensor]:
    size = labels_BHW.shape[-2:]
    logits_BKHW = upsample(logits_BKhw, size)  # once, for both losses
    return (
        unbiased_cross_entropy(logits_BKHW, labels_BHW, num_old),
        unbiased_distillation(logits_BKHW, old_logits_BOhw, background_weight, size),
    )
