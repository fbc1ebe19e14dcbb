"""Is a grown model safe to deploy? What labelled images of old classes say, or what can be known without.

With a check folder: IoU of every old class before and after, with a bootstrap interval over its images.
Without: how often the grown model agrees with the old one where nothing new is, on the held-out new images.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from segue.core.classes import IGNORE, ClassTable
from segue.core.verdict import Answer, OldClass, Verdict
from segue.data.datasets.base import SegDataset
from segue.deploy.changes import MostChanged
from segue.deploy.model import Model

RESAMPLES = 1000


@dataclass(frozen=True)
class Limits:
    """From where on a change counts."""

    max_drop: float = 2.0
    """largest loss of mean IoU of old classes, or of agreement, in points"""
    min_new: float = 10.0
    """least IoU of a new class, in points"""


@dataclass(frozen=True)
class Counts:
    """Pixels per image (rows) and old class (columns)."""

    truth: np.ndarray
    before: np.ndarray
    """predicted by the old model"""
    before_hit: np.ndarray
    after: np.ndarray
    """predicted by the grown model"""
    after_hit: np.ndarray
    lost: np.ndarray
    """pixels of the class that the grown model calls a new class"""


def count(
    old: Model,
    grown: Model,
    images: SegDataset,
    labelled: bool,
    tell: Callable[[int], None] | None = None,
    changed: MostChanged | None = None,
) -> Counts:
    """Both models on every image; without labels of old classes the old model's answer is the truth.

    Pixels of new classes, of void and of classes that neither model knows do not count.
    """
    known, rows = len(old.classes), []
    table = channel_table(images.classes, grown.classes)
    for index in range(len(images)):
        if tell is not None:
            tell(index)
        sample = images.read(index)
        truth = table[sample.mask]
        before, after = old.predict(sample.image).ids, grown.predict(sample.image).ids
        counted = truth < known
        if changed is not None:
            changed.see(sample.key, sample.image, before, after, counted)
        if not labelled:
            truth = before
        truth, before, after = truth[counted], before[counted], after[counted]
        hits = (after[after == truth], before[before == truth])
        rows.append(
            [
                np.bincount(each, minlength=known)[1:known]
                for each in (truth, before, hits[1], after[after < known], hits[0], truth[after >= known])
            ]
        )
    stacked = np.array(rows, dtype=np.int64)
    return Counts(*(stacked[:, place] for place in range(6)))


def channel_table(classes: ClassTable, channels: Sequence[str]) -> np.ndarray:
    """256 labels, one per mask id: the channel of its name, 0 for background, 255 for what none has."""
    table = np.full(256, IGNORE, dtype=np.uint8)
    if classes.background is not None:
        table[classes.background] = 0
    for class_id, name in classes.names.items():
        if name in channels:
            table[class_id] = channels.index(name)
    return table


def judge(
    old: Model, counts: Counts, new: dict[str, float | None], labelled: bool, limits: Limits
) -> Verdict:
    """The answer that the counts and the scores of new classes give."""
    seen = (_old_class(name, counts, place, labelled) for place, name in enumerate(old.classes[1:]))
    classes = tuple(one for one in seen if one is not None)
    change = float(np.mean([one.after - one.before for one in classes])) if classes else 0.0
    reasons = [
        f"{name} has IoU {value:.1f}, under {limits.min_new:g}"
        for name, value in new.items()
        if value is not None and value < limits.min_new
    ]
    reasons += [f"no held-out image shows {name}" for name, value in new.items() if value is None]
    fallen = [one for one in classes if one.high < -limits.max_drop]
    reasons += [f"{one.name} falls from {one.before:.1f} to {one.after:.1f}" for one in fallen]
    what = "mean IoU of old classes" if labelled else "agreement with the old model"
    if change < -limits.max_drop:
        reasons.insert(0, f"{what} falls by {-change:.1f} points, more than {limits.max_drop:g}")
    unsafe = change < -2 * limits.max_drop
    answer: Answer = "not safe" if unsafe else "look here first" if reasons else "safe to deploy"
    evidence = _evidence(counts, classes, labelled)
    return Verdict(answer, evidence, classes, new, change, labelled, tuple(reasons))


def _old_class(name: str, counts: Counts, place: int, labelled: bool) -> OldClass | None:
    columns = [getattr(counts, field)[:, place] for field in Counts.__dataclass_fields__]
    truth, *_, lost = columns
    if not truth.sum():
        return None
    generator = np.random.default_rng(place)
    drawn = generator.integers(0, len(truth), (RESAMPLES, len(truth)))
    before, after = _scores(labelled, *(column.sum() for column in columns[:5]))
    sums = [column[drawn].sum(1) for column in columns[:5]]
    resampled_before, resampled_after = _scores(labelled, *sums)
    low, high = np.nanpercentile(resampled_after - resampled_before, [2.5, 97.5])
    share = 100 * lost.sum() / truth.sum()
    images = int((truth > 0).sum())
    return OldClass(name, float(before), float(after), float(low), float(high), images, float(share))


def _scores(
    labelled: bool,
    truth: np.ndarray,
    before: np.ndarray,
    before_hit: np.ndarray,
    after: np.ndarray,
    after_hit: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Before and after, in points: IoU, or the share of pixels that kept their class."""
    with np.errstate(divide="ignore", invalid="ignore"):
        if not labelled:
            kept = 100 * after_hit / truth
            return np.full_like(kept, 100.0), kept
        return (
            100 * before_hit / (truth + before - before_hit),
            100 * after_hit / (truth + after - after_hit),
        )


def _evidence(counts: Counts, classes: Sequence[OldClass], labelled: bool) -> str:
    images = len(counts.truth)
    shown = f"{len(classes)} of {counts.truth.shape[1]} old classes"
    if labelled:
        return f"{images} labelled images with {shown}."
    return (
        f"{images} new images, on which the old model sees {shown}: agreement with it, not truth."
        " Labelled images of old classes say more: --check FOLDER."
    )
