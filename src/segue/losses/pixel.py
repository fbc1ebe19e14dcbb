"""Losses on pixels: cross-entropy and distillation, plain, binary, and with a background that changes its
meaning.

Shapes: B batch, K channels now, O channels of the teacher (both with background), h x w at the model's
stride, H x W at the labels' resolution. Every mean runs over *all* pixels: ignored pixels count in the
denominator, as in the code behind the published numbers. `distillation` is that of LwF and ILT as MiB runs
them, the binary pair that of LwF-MC. The unbiased losses are those of MiB (Cermelli et al. 2020). CAF (Yang
et al. 2022) takes them over as L_SEG (eq. 14-15) and, with a background weight gamma (eq. 11), as L_D (eq.
12).
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

IGNORE = 255
GammaReading = Literal["logit", "ratio", "literal"]


def wide(values: Tensor) -> Tensor:
    """At least single precision: squares and exponentials overflow below."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def upsample(logits_BKhw: Tensor, size: tuple[int, int]) -> Tensor:
    """Bilinear, corners not aligned, in float32 at least."""
    logits = wide(logits_BKhw)
    if logits.shape[-2:] == tuple(size):
        return logits
    return F.interpolate(logits, size=tuple(size), mode="bilinear", align_corners=False)


def cross_entropy(
    logits_BKhw: Tensor,
    labels_BHW: Tensor,
    class_weight_K: Tensor | None = None,
    image_weight_B: Tensor | None = None,
) -> Tensor:
    """Softmax cross-entropy, labels 255 ignored; classes and images may have weights."""
    logits_BKHW = upsample(logits_BKhw, labels_BHW.shape[-2:])
    reduction = "sum" if image_weight_B is None else "none"
    loss = F.cross_entropy(
        logits_BKHW, labels_BHW.long(), class_weight_K, ignore_index=IGNORE, reduction=reduction
    )
    if image_weight_B is not None:
        loss = (loss.sum((1, 2)) * image_weight_B).sum()
    return loss / labels_BHW.numel()


def class_balance(labels_BHW: Tensor, num_channels: int, exponent: float) -> Tensor:
    """Weights of the classes in a batch, by a power of how seldom they are; a pixel's weight is 1 on average.

    0 leaves the classes as frequent as they are, 1 gives each that is there the same weight in all.
    """
    rows_N = labels_BHW.masked_fill(labels_BHW == IGNORE, num_channels).flatten().long()
    counts_K = rows_N.new_zeros(num_channels + 1).index_add(0, rows_N, torch.ones_like(rows_N))[:num_channels]
    weights_K = counts_K.clamp_min(1).float() ** -exponent
    return weights_K * (counts_K.sum() / (counts_K * weights_K).sum().clamp_min(1.0))


def binary_cross_entropy(logits_BKhw: Tensor, labels_BHW: Tensor) -> Tensor:
    """Each channel, background too, against the rest: summed over channels, labels 255 ignored."""
    logits_BKHW = upsample(logits_BKhw, labels_BHW.shape[-2:])
    labels_BHW = labels_BHW.long()
    ignored_BHW = labels_BHW == IGNORE
    index_B1HW = labels_BHW.masked_fill(ignored_BHW, 0).unsqueeze(1)
    # softplus(o) for a wrong channel, softplus(-o) = softplus(o) - o for the right one: no one-hot target
    loss_BHW = F.softplus(logits_BKHW).sum(1) - logits_BKHW.gather(1, index_B1HW).squeeze(1)
    return loss_BHW.masked_fill(ignored_BHW, 0.0).mean()


def distillation(logits_BKhw: Tensor, old_logits_BOhw: Tensor, size: tuple[int, int] | None = None) -> Tensor:
    """Cross-entropy of the old channels, among themselves, with the teacher's; divided by their number."""
    logits_BOHW, old_BOHW = _old_channels(logits_BKhw, old_logits_BOhw, size)
    return -(old_BOHW.softmax(1) * logits_BOHW.log_softmax(1)).mean()


def binary_distillation(
    logits_BKhw: Tensor, old_logits_BOhw: Tensor, size: tuple[int, int] | None = None
) -> Tensor:
    """Binary cross-entropy of every old channel with the teacher's probability, averaged over channels."""
    logits_BOHW, old_BOHW = _old_channels(logits_BKhw, old_logits_BOhw, size)
    return F.binary_cross_entropy_with_logits(logits_BOHW, old_BOHW.sigmoid())


def _old_channels(
    logits_BKhw: Tensor, old_logits_BOhw: Tensor, size: tuple[int, int] | None
) -> tuple[Tensor, Tensor]:
    """The student's logits of the teacher's channels, and the teacher's, upsampled."""
    size = tuple(logits_BKhw.shape[-2:]) if size is None else size
    return upsample(logits_BKhw[:, : old_logits_BOhw.shape[1]], size), upsample(old_logits_BOhw, size)


def unbiased_cross_entropy(logits_BKhw: Tensor, labels_BHW: Tensor, num_old: int) -> Tensor:
    """Cross-entropy in which the label background means "background or any old class" (CAF eq. 14-15).

    `num_old` counts the old channels with background; labels below it are background. 1: plain cross-entropy.
    """
    logits_BKHW = upsample(logits_BKhw, labels_BHW.shape[-2:])
    labels_BHW = labels_BHW.long()
    ignored_BHW = labels_BHW == IGNORE
    background_BHW = logits_BKHW[:, :num_old].logsumexp(1)
    index_BHW = labels_BHW.masked_fill(ignored_BHW, 0)
    own_BHW = logits_BKHW.gather(1, index_BHW.unsqueeze(1)).squeeze(1)
    target_BHW = torch.where(labels_BHW < num_old, background_BHW, own_BHW)
    loss_BHW = (logits_BKHW.logsumexp(1) - target_BHW).masked_fill(ignored_BHW, 0.0)
    return loss_BHW.mean()


def unbiased_distillation(
    logits_BKhw: Tensor,
    old_logits_BOhw: Tensor,
    background_weight: Tensor | float | None = None,
    size: tuple[int, int] | None = None,
) -> Tensor:
    """Distillation in which the teacher's background means "background or any new class" (CAF eq. 9-10).

    `background_weight` is gamma of CAF eq. 11-12, a number or one per image; None is MiB. With `size` both
    maps are upsampled first. The sum over classes is divided by their number, as in the authors' code: the
    published weights (10, 100) belong to that.
    """
    num_old = old_logits_BOhw.shape[1]
    if num_old >= logits_BKhw.shape[1]:
        raise ValueError(
            f"Unbiased distillation needs new classes: {num_old} old of {logits_BKhw.shape[1]} channels."
        )
    size = tuple(logits_BKhw.shape[-2:]) if size is None else size
    logits_BKHW, old_BOHW = upsample(logits_BKhw, size), upsample(old_logits_BOhw, size)
    target_BOHW = old_BOHW.softmax(1)
    total_BHW = logits_BKHW.logsumexp(1)
    merged_BNHW = torch.cat([logits_BKHW[:, :1], logits_BKHW[:, num_old:]], dim=1)
    background_BHW = target_BOHW[:, 0] * (merged_BNHW.logsumexp(1) - total_BHW)
    kept_BHW = (target_BOHW[:, 1:] * (logits_BKHW[:, 1:num_old] - total_BHW.unsqueeze(1))).sum(1)
    if background_weight is not None:
        weight = torch.as_tensor(background_weight, dtype=background_BHW.dtype, device=background_BHW.device)
        background_BHW = background_BHW * weight.reshape(-1, 1, 1)
    return -(background_BHW + kept_BHW).mean() / num_old


def background_balance(old_logits_BOhw: Tensor, reading: GammaReading = "logit") -> Tensor:
    """gamma of CAF eq. 11: foreground to background as the teacher sees it, one number per image.

    `logit` pools logits and takes the softmax (the released code); `ratio` averages the probabilities (what
    the text describes); `literal` takes the softmax of averaged probabilities (the equation as printed). All
    of it at the model's stride.
    """
    old_BOhw = upsample(old_logits_BOhw, old_logits_BOhw.shape[-2:])
    if reading == "logit":
        pooled_BO = old_BOhw.mean((2, 3))
    elif reading == "ratio":
        pooled_BO = old_BOhw.softmax(1).mean((2, 3)).clamp_min(torch.finfo(old_BOhw.dtype).tiny).log()
    else:
        pooled_BO = old_BOhw.softmax(1).mean((2, 3))
    # sum of the others' softmax over background's: the partition function cancels
    log_gamma_B = pooled_BO[:, 1:].logsumexp(1) - pooled_BO[:, 0]
    return log_gamma_B.clamp_max(math.log(torch.finfo(log_gamma_B.dtype).max) / 2).exp()  # never infinite
