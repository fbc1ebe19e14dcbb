"""Scores as pure functions of integer confusion matrices (rows: truth, columns: prediction; channel 0 is
background).

Conventions. IoU of a class without ground truth is NaN and left out of every mean. *old* means the classes of
step 0,
*new* those that arrived later, *all* both; these leave background out, as the tables of MiB and CAF do, and
`_bg` marks the means that count it, as PLOP and later papers do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


def iou(confusion: np.ndarray) -> np.ndarray:
    """Intersection over union per channel; NaN where there is no ground truth."""
    confusion = np.asarray(confusion, dtype=np.int64)
    truth, predicted, hit = confusion.sum(1), confusion.sum(0), np.diag(confusion)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(truth > 0, hit / (truth + predicted - hit), np.nan)


def mean(values: np.ndarray) -> float:
    """Mean of the finite values, NaN if there are none."""
    values = np.asarray(values, dtype=np.float64)
    values = values[~np.isnan(values)]
    return float(values.mean()) if len(values) else math.nan


@dataclass(frozen=True)
class StepScores:
    """Mean IoU after one step, in [0, 1]."""

    old: float
    new: float
    all: float
    old_bg: float
    all_bg: float
    background: float
    h: float
    """harmonic mean of old and new"""


def step_scores(confusion: np.ndarray, num_first: int) -> StepScores:
    """Scores after one step; `num_first` is the number of classes of step 0."""
    per_class = iou(confusion)
    old, new = mean(per_class[1 : 1 + num_first]), mean(per_class[1 + num_first :])
    return StepScores(
        old=old,
        new=new,
        all=mean(per_class[1:]),
        old_bg=mean(per_class[: 1 + num_first]),
        all_bg=mean(per_class),
        background=float(per_class[0]),
        h=harmonic_mean(old, new),
    )


def group_means(confusion: np.ndarray, sizes: Sequence[int]) -> list[float]:
    """Mean IoU of the classes that arrived at each step; NaN for steps whose classes the matrix lacks.

    `sizes` are the numbers of classes of the steps, in their order.
    """
    per_class, ends = iou(confusion)[1:], np.cumsum(sizes)
    groups = zip(ends - np.asarray(sizes), ends, strict=True)
    return [mean(per_class[start:end]) if end <= len(per_class) else math.nan for start, end in groups]


def harmonic_mean(a: float, b: float) -> float:
    if math.isnan(a) or math.isnan(b):
        return math.nan
    return 2 * a * b / (a + b) if a + b else 0.0


def average_over_steps(confusions: Sequence[np.ndarray], background: bool = False) -> float:
    """Mean over steps of the mIoU over all classes seen so far."""
    return mean(np.array([mean(iou(confusion)[0 if background else 1 :]) for confusion in confusions]))


def class_history(confusions: Sequence[np.ndarray]) -> np.ndarray:
    """IoU of each class (columns, no background) after each step (rows); NaN before its step."""
    history = np.full((len(confusions), len(confusions[-1]) - 1), np.nan)
    for row, confusion in enumerate(confusions):
        history[row, : len(confusion) - 1] = iou(confusion)[1:]
    return history


def forgetting(confusions: Sequence[np.ndarray]) -> float:
    """Mean over the classes known before the last step of (best IoU at an earlier step - IoU at the end)."""
    if len(confusions) < 2:
        return math.nan
    known = len(confusions[-2]) - 1
    history = class_history(confusions)[:, :known]
    best = np.array([np.nan if np.isnan(column).all() else np.nanmax(column) for column in history[:-1].T])
    return mean(best - history[-1])


def backward_transfer(confusions: Sequence[np.ndarray]) -> float:
    """Mean over the classes known before the last step of (IoU at the end - IoU right after learning it)."""
    if len(confusions) < 2:
        return math.nan
    known = len(confusions[-2]) - 1
    history = class_history(confusions)
    learned = [
        next(row for row, c in enumerate(confusions) if len(c) - 1 > column) for column in range(known)
    ]
    return mean(history[-1, :known] - history[learned, range(known)])


@dataclass(frozen=True)
class RunScores:
    """Everything that is said about a finished run, in [0, 1] or NaN where it is not defined."""

    final: StepScores
    average: float
    average_bg: float
    forgetting: float
    backward_transfer: float
    stability: float
    """"old" at the end / "old" after step 0"""
    plasticity: float
    """"new" at the end / "new" of Joint"""
    gap_to_joint: float
    """"all" of Joint - "all" at the end"""


def run_scores(
    confusions: Sequence[np.ndarray],
    num_first: int,
    joint: np.ndarray | None = None,
    same_images: bool = True,
) -> RunScores:
    """Scores of a run from its confusion matrices, one per step, and the one of Joint if there is any.

    Without `same_images`, where steps before the last were tested on fewer, no step is held against another.
    """
    first, final = step_scores(confusions[0], num_first), step_scores(confusions[-1], num_first)
    upper = None if joint is None else step_scores(joint, num_first)
    return RunScores(
        final=final,
        average=average_over_steps(confusions),
        average_bg=average_over_steps(confusions, background=True),
        forgetting=forgetting(confusions) if same_images else math.nan,
        backward_transfer=backward_transfer(confusions) if same_images else math.nan,
        stability=final.old / first.old if same_images and first.old else math.nan,
        plasticity=final.new / upper.new if upper and upper.new else math.nan,
        gap_to_joint=upper.all - final.all if upper else math.nan,
    )
