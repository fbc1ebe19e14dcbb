"""Labels that the teacher gives to what a step leaves unlabelled (PLOP, Douillard et al., CVPR 2021).

Shapes: B batch, O the teacher's channels with background, h x w at the model's stride, H x W at the labels'
resolution; a strip is N x R x O x W. Old classes hide in a step's background. The teacher says which pixel is
which, and how sure it is; where it is not sure enough the pixel is ignored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from segue.losses._strips import pixel_answers
from segue.losses.pixel import IGNORE

BINS = 100
LEAST_THRESHOLD = 0.001
MedianReading = Literal["fixed", "official"]


def most_likely(logits_BOhw: Tensor, size: Sequence[int], binary: bool = False) -> tuple[Tensor, Tensor]:
    """The probability of each pixel's likeliest channel, and that channel: B x H x W both.

    `binary`: channels are no alternatives, each has a probability of its own.
    """

    def answer(z_NROW: Tensor) -> tuple[Tensor, Tensor]:
        best_NRW, index_NRW = z_NROW.max(2)
        return best_NRW.sigmoid() if binary else (best_NRW - z_NROW.logsumexp(2)).exp(), index_NRW

    probability_BHW, channel_BHW = pixel_answers(logits_BOhw, size, answer)
    return probability_BHW, channel_BHW


def uncertainty(old_logits_BOHW: Tensor, num_channels: int, dim: int = 1) -> Tensor:
    """The teacher's entropy per pixel, in the units of the authors' code: B x H x W.

    A mean over channels instead of a sum, divided by ln O and by ln K (K = `num_channels`, all channels of
    the step), so it never exceeds 1 / (O ln K).
    """
    log_p_BOHW = old_logits_BOHW.log_softmax(dim)
    mean_BHW = -(log_p_BOHW.exp() * log_p_BOHW).mean(dim)
    return mean_BHW / (math.log(old_logits_BOHW.shape[dim]) * math.log(num_channels))


def _answers(old_logits_BOhw: Tensor, size: Sequence[int], num_channels: int) -> tuple[Tensor, Tensor]:
    """What the teacher takes each pixel for, and how unsure it is."""

    def answer(z_NROW: Tensor) -> tuple[Tensor, Tensor]:
        return z_NROW.max(2)[1], uncertainty(z_NROW, num_channels, dim=2)  # argmax is eight times slower

    channel_BHW, uncertainty_BHW = pixel_answers(old_logits_BOhw, size, answer)
    return channel_BHW, uncertainty_BHW


def count_uncertainty(
    old_logits_BOhw: Tensor, labels_BHW: Tensor, num_channels: int, median: MedianReading = "fixed"
) -> Tensor:
    """How many background pixels of each predicted channel fall into each bin of uncertainty: O x 100.

    The bins of `fixed` cover what uncertainty can be, those of `official` reach up to 1, where it never is.
    """
    num_old = old_logits_BOhw.shape[1]
    answer_BHW, unsure_BHW = _answers(old_logits_BOhw, labels_BHW.shape[-2:], num_channels)
    share_BHW = unsure_BHW / bin_range(num_old, num_channels, median)
    bins_BHW = (share_BHW * BINS).long().clamp(0, BINS - 1)
    cells_N = (answer_BHW * BINS + bins_BHW)[labels_BHW == 0]
    return torch.bincount(cells_N, minlength=num_old * BINS).reshape(num_old, BINS)


def bin_range(num_old: int, num_channels: int, median: MedianReading) -> float:
    """Where the last bin ends."""
    return 1 / (num_old * math.log(num_channels)) if median == "fixed" else 1.0


def thresholds(counts_ON: Tensor, num_channels: int, median: MedianReading = "fixed") -> Tensor:
    """The median uncertainty of every channel, at least 0.001, which is also that of a channel never seen.

    `fixed`: the median, interpolated inside its bin. `official`: as released, where the running sum adds
    numbers of bins instead of counts, and rounding shifts three bins: seldom right unless the first bin holds
    half of the pixels; else mostly infinite, so that every answer is accepted.
    """
    edge_N = torch.arange(BINS, device=counts_ON.device) / BINS
    if median == "fixed":
        inside_ON, before_ON = counts_ON, counts_ON.cumsum(1) - counts_ON
    else:
        inside_ON = counts_ON[:, [int(i / BINS * BINS) for i in range(BINS)]]
        before_ON = ((edge_N * BINS).cumsum(0) - edge_N * BINS).expand(len(counts_ON), BINS)
    half_O1 = counts_ON.sum(1, keepdim=True) / 2
    hit_ON = (before_ON <= half_O1) & (half_O1 <= before_ON + inside_ON)
    # without a hit the search ends after the last bin
    first_O1 = torch.where(hit_ON.any(1), hit_ON.int().argmax(1), BINS - 1)[:, None]
    before_O1 = torch.where(hit_ON.any(1, keepdim=True), before_ON.gather(1, first_O1), edge_N.sum() * BINS)
    share_O1 = (half_O1 - before_O1) / inside_ON.gather(1, first_O1)
    found_O = (edge_N[first_O1] + share_O1 / BINS).squeeze(1)
    found_O = torch.where(counts_ON.sum(1) > 0, found_O, 0.0)
    return (found_O * bin_range(len(counts_ON), num_channels, median)).clamp_min(LEAST_THRESHOLD)


def pseudo_labels(
    labels_BHW: Tensor, old_logits_BOhw: Tensor, thresholds_O: Tensor, num_channels: int
) -> tuple[Tensor, Tensor]:
    """Labels with the teacher's answer on the background, and the share of it that was kept, per image.

    A background pixel of which the teacher is less sure than its channel's threshold is ignored.
    """
    background_BHW = labels_BHW < old_logits_BOhw.shape[1]
    answer_BHW, unsure_BHW = _answers(old_logits_BOhw, labels_BHW.shape[-2:], num_channels)
    kept_BHW = background_BHW & (unsure_BHW < thresholds_O[answer_BHW])
    filled_BHW = torch.where(kept_BHW, answer_BHW, IGNORE)
    share_B = kept_BHW.sum((1, 2)) / (background_BHW.sum((1, 2)) + 1e-6)
    return torch.where(background_BHW, filled_BHW, labels_BHW.long()), share_B
