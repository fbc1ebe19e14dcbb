"""Differences of methods beside their intervals: each against the best, paired over seeds and test images."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from segue.core.bootstrap import ROUNDS, Interval, paired_interval
from segue.core.image_counts import ImageCounts, read_counts
from segue.report.comparison import Comparison, Entry, Stat
from segue.report.tables import Sheet

GROUPS = ("old", "new", "all")


def paired_sheet(comparison: Comparison, entries: Mapping[str, Entry]) -> Sheet | None:
    """Old, new and all of every method less those of the best one; None where fewer than two can be paired.

    The best is the one with the highest mean of all classes; Joint, which learns in no steps, is never it.
    """
    counts = {name: _counts(entry) for name, entry in entries.items()}
    known = {name: found for name, found in counts.items() if found}
    rivals = [name for name in known if not entries[name].offline]
    if len(known) < 2 or not rivals:
        return None
    best = max(
        rivals, key=lambda name: entries[name].step_stat(comparison.num_steps - 1, lambda s: s.all).mean
    )
    rows = [
        (name, _cells(known.get(name, {}), known[best], comparison.num_first))
        for name in entries
        if name != best
    ]
    without = [name for name in entries if name not in known]
    return Sheet(
        title=f"Less {best}, in points",
        heads=tuple((group, word) for group in GROUPS for word in ("less", "from", "to")),
        decimals=(1,) * 3 * len(GROUPS),
        rows=tuple(rows),
        caption=(
            f"Mean IoU of a row less that of {best}, and where it lies in 95 % of {ROUNDS:,} draws of the"
            " test images (paired bootstrap: the same draw for both methods and all seeds).",
            *([f"Without counts of single images: {', '.join(without)}."] if without else []),
        ),
    )


def differences(
    ours: Mapping[int, ImageCounts], theirs: Mapping[int, ImageCounts], num_first: int
) -> dict[str, Interval] | None:
    """Old, new and all of one method less another's, over the seeds that both have; None without any."""
    seeds = [seed for seed in ours if seed in theirs and ours[seed].images == theirs[seed].images]
    if not seeds:
        return None
    pairs = [ours[seed].counts for seed in seeds], [theirs[seed].counts for seed in seeds]
    channels = range(1, pairs[0][0].shape[2])
    if any(counts.shape[2] != len(channels) + 1 for each in pairs for counts in each):
        return None
    chosen = {"old": channels[:num_first], "new": channels[num_first:], "all": channels}
    return {name: paired_interval(*pairs, list(group)) for name, group in chosen.items() if group}


def _cells(
    ours: Mapping[int, ImageCounts], best: Mapping[int, ImageCounts], num_first: int
) -> tuple[Stat, ...]:
    found = differences(ours, best, num_first) or {}
    nothing = Interval(math.nan, math.nan, math.nan)
    values: Sequence[Interval] = [found.get(group, nothing) for group in GROUPS]
    return tuple(Stat(float(x)) for each in values for x in (each.difference, each.low, each.high))


def _counts(entry: Entry) -> dict[int, ImageCounts]:
    """Counts after the last step of the finished runs, by seed."""
    found = {}
    for run in entry.finished:
        last = run.steps[-1]
        counts = read_counts(run.folder, last.step)
        if counts is not None and np.array_equal(counts.counts[:, 1].sum(0), last.matrix.sum(1)):
            found[last.seed] = counts
    return found
