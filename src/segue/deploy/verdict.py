"""Is a grown model safe to deploy? What labelled images of old classes say, or what can be known without.

With a check folder: IoU of every old class before and after, with a bootstrap interval over its images.
Without: how often the grown model agrees with the old one where nothing new is, on the held-out new images.
What follows from these numbers is core/verdict.py's matter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from segue.core.classes import IGNORE, ClassTable
from segue.core.verdict import Limits, MeanChange, OldClass, Unknown, Verdict, weigh
from segue.data.datasets.base import SegDataset
from segue.deploy.changes import MostChanged
from segue.deploy.model import Model
from segue.deploy.taken_for import taken_for_new
from segue.deploy.teachers.outer_model import OuterModel

RESAMPLES = 1000


@dataclass(frozen=True)
class Counts:
    """Pixels per image (rows) and old class (columns)."""

    keys: tuple[str, ...]
    """names of the images"""
    sizes: np.ndarray
    """all pixels of each image"""
    truth: np.ndarray
    before: np.ndarray
    """predicted by the old model"""
    before_hit: np.ndarray
    after: np.ndarray
    """predicted by the grown model"""
    after_hit: np.ndarray
    lost: np.ndarray
    """pixels of the class that the grown model calls a new class"""
    left_out: np.ndarray
    """pixels that the old model calls so, but that do not count without labels"""


def count(
    old: Model | OuterModel,
    grown: Model,
    images: SegDataset,
    labelled: bool,
    tell: Callable[[int], None] | None = None,
    changed: MostChanged | None = None,
) -> Counts:
    """Both models on every image; without labels of old classes the old model's answer is the truth.

    Pixels of new classes, of void and of classes that neither model knows do not count. Without labels of old
    classes neither does what a drawn new object may have been taken for.
    """
    known, keys, rows, sizes = len(old.classes), [], [], []
    table = channel_table(images.classes, grown.classes)
    for index in range(len(images)):
        if tell is not None:
            tell(index)
        sample = images.read(index)
        truth = table[sample.mask]
        before, after = old.predict(sample.image).ids, grown.predict(sample.image).ids
        counted = truth < known
        if not labelled:
            drawn, void = (truth >= known) & (truth != IGNORE), truth == IGNORE
            counted &= ~taken_for_new(before, drawn, void)
        if changed is not None:
            changed.see(sample.key, sample.image, before, after, counted)
        left_out = before[~counted] if not labelled else np.zeros(0, np.int64)
        if not labelled:
            truth = before
        truth, before, after = truth[counted], before[counted], after[counted]
        hits = (after[after == truth], before[before == truth])
        lost = truth[after >= known]
        keys.append(sample.key)
        sizes.append(counted.size)
        rows.append(
            [
                np.bincount(each, minlength=known)[1:known]
                for each in (truth, before, hits[1], after[after < known], hits[0], lost, left_out)
            ]
        )
    stacked = np.array(rows, dtype=np.int64)
    return Counts(tuple(keys), np.array(sizes), *(stacked[:, place] for place in range(7)))


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
    old: Model | OuterModel, counts: Counts, new: dict[str, float | None], labelled: bool, limits: Limits
) -> Verdict:
    """The verdict that the counts and the scores of new classes give."""
    names = old.classes[1:]
    pixels = (counts.truth, counts.before, counts.before_hit, counts.after, counts.after_hit)
    images = len(counts.keys)
    # how often each image is drawn: sums over draws are then one product
    drawn = np.random.default_rng(0).multinomial(images, np.full(images, 1 / images), RESAMPLES)
    before, after = _scores(labelled, *(each.sum(0) for each in pixels))
    changes = np.subtract(*reversed(_scores(labelled, *(drawn @ each for each in pixels))))
    lost, shown = counts.lost.sum(0), counts.truth.sum(0)
    showing = (counts.truth > 0).sum(0)
    enough = shown > (0 if labelled else limits.min_area / 100 * counts.sizes.mean())
    classes = []
    for place in np.flatnonzero(enough).tolist():
        low, high = np.nanpercentile(changes[:, place], [2.5, 97.5])
        classes.append(
            OldClass(
                names[place],
                before=float(before[place]),
                after=float(after[place]),
                low=float(low),
                high=float(high),
                images=int(showing[place]),
                lost=100 * float(lost[place] / shown[place]),
                worst=_worst(counts, place),
            )
        )
    left_out = counts.left_out.sum(0)
    unknown = [
        Unknown(names[place], int(shown[place]), int(showing[place]), int(left_out[place]))
        for place in np.flatnonzero(~enough).tolist()
    ]
    judged = int(counts.truth[:, enough].any(1).sum())
    mean = _mean_change(classes, changes[:, enough], judged)
    evidence = _evidence(counts, classes, labelled, int(shown[enough].sum()))
    return weigh(classes, unknown, new, mean, labelled, limits, evidence)


def _worst(counts: Counts, place: int) -> str:
    """The image in which most pixels of a class have become wrong: lost, or taken from others."""
    errors = (counts.after - counts.before - 2 * (counts.after_hit - counts.before_hit))[:, place]
    return counts.keys[int(errors.argmax())] if errors.max() > 0 else ""


def _mean_change(classes: Sequence[OldClass], changes: np.ndarray, images: int) -> MeanChange | None:
    if not classes:
        return None
    known = np.isfinite(changes)
    drawn = known.any(1)  # not where a draw shows no class at all
    means = np.where(known, changes, 0).sum(1)[drawn] / known.sum(1)[drawn]
    low, high = (float(end) for end in np.percentile(means, [2.5, 97.5]))
    return MeanChange(float(np.mean([one.change for one in classes])), low, high, images)


def _scores(
    labelled: bool,
    truth: np.ndarray,
    before: np.ndarray,
    before_hit: np.ndarray,
    after: np.ndarray,
    after_hit: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Before and after, in points: IoU, or the share of pixels that kept their class."""
    shown = np.where(truth > 0, truth, np.nan)  # a draw without the class says nothing of it
    if not labelled:
        kept = 100 * after_hit / shown
        return np.full_like(kept, 100.0), kept
    return (
        100 * before_hit / (shown + before - before_hit),
        100 * after_hit / (shown + after - after_hit),
    )


def _evidence(counts: Counts, classes: Sequence[OldClass], labelled: bool, pixels: int) -> str:
    images = len(counts.truth)
    shown = f"{len(classes)} of {counts.truth.shape[1]} old classes"
    if labelled:
        return f"{images} labelled images with {shown}."
    enough = f"enough of {shown} ({pixels:,} pixels)" if classes else "too little of all old classes"
    return f"{images} new images, on which the old model sees {enough}: agreement with it, not truth."
