"""Whether one method is better than another, or the test images happened to suit it: a paired bootstrap.

The test images are drawn anew with replacement, many times. Each draw is the same for both methods and all
seeds, so that what makes an image hard for both cancels. Runs of equal seed are paired, and the seeds'
differences are averaged. The interval tells what other test images might have given; what other seeds might
have given is the standard deviation over seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from segue.core.errors import UserError

ROUNDS, SEED = 2000, 0
LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """A difference of mean IoU in points, and where it lies in 95 % of the draws."""

    difference: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        """Whether zero lies outside."""
        return self.low > 0 or self.high < 0


def paired_interval(
    ours: Sequence[np.ndarray],
    theirs: Sequence[np.ndarray],
    channels: Sequence[int],
    rounds: int = ROUNDS,
    seed: int = SEED,
) -> Interval:
    """The difference of two methods in the mean IoU of some channels.

    Counts of each seed (N images x 3 parts x C channels; hits, truth, predicted), pair by pair.
    """
    if not ours or len(ours) != len(theirs):
        raise UserError("A paired bootstrap needs runs of the same seeds of both methods.")
    images = len(ours[0])
    if any(len(counts) != images for counts in (*ours, *theirs)):
        raise UserError("A paired bootstrap needs runs that were tested on the same images.")
    generator = np.random.default_rng(seed)
    once, even = np.ones((1, images)), np.full(images, 1 / images)
    drawn = generator.multinomial(images, even, size=rounds).astype(float)
    chosen = list(channels)
    gaps = [
        np.mean(
            [
                mean_ious(a, draw, chosen) - mean_ious(b, draw, chosen)
                for a, b in zip(ours, theirs, strict=True)
            ],
            axis=0,
        )
        for draw in (once, drawn)
    ]
    means = gaps[1][np.isfinite(gaps[1])]
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]) if means.size else (np.nan, np.nan)
    return Interval(*(100 * float(value) for value in (gaps[0][0], low, high)))


def mean_ious(counts_N3C: np.ndarray, weights_RN: np.ndarray, channels: Sequence[int]) -> np.ndarray:
    """Mean IoU of channels for each weighting of the images; a channel without ground truth is left out.

    A weighting in which no channel has ground truth has no mean: NaN.
    """
    parts = counts_N3C[:, :, list(channels)].reshape(len(counts_N3C), -1).astype(float)
    hits, truth, predicted = (weights_RN @ parts).reshape(len(weights_RN), 3, -1).transpose(1, 0, 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        ious = np.where(truth > 0, hits / (truth + predicted - hits), 0.0)
        return ious.sum(1) / (truth > 0).sum(1)
