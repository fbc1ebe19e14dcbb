"""Tests during a step, strategy by strategy: does using the old model at test time help, and when?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from segue.core.metrics import step_scores
from segue.core.records import RunRecord, TrajectoryRecord, read_trajectory
from segue.report.charts import Chart
from segue.report.comparison import Comparison, Stat, stat
from segue.report.line_charts import Line, axis_limit, line_chart
from segue.report.tables import MEANS, Sheet

TITLES = {"old": "classes of step 0", "new": "later classes"}


@dataclass(frozen=True)
class Trajectory:
    """The tests during one step of one row of a comparison, over its seeds."""

    label: str
    step: int
    epochs: tuple[int, ...]
    scores: dict[str, dict[str, tuple[Stat, ...]]]
    """strategy -> old, new, all -> percent after each of the epochs"""


def trajectories(label: str, runs: Iterable[RunRecord]) -> list[Trajectory]:
    """Every step with more than one strategy that was tested during training."""
    steps: dict[int, list[TrajectoryRecord]] = {}
    for run in runs:
        for record in read_trajectory(run.folder):
            if len(record.confusions) > 1:
                steps.setdefault(record.step, []).append(record)
    return [_trajectory(label, step, records) for step, records in sorted(steps.items())]


def _trajectory(label: str, step: int, records: Sequence[TrajectoryRecord]) -> Trajectory:
    epochs = tuple(sorted({record.epoch for record in records}))
    names = list(dict.fromkeys(name for record in records for name in record.confusions))
    scores: dict[str, dict[str, tuple[Stat, ...]]] = {}
    for name in names:
        found = {
            epoch: [
                step_scores(record.matrix(name), record.num_first)
                for record in records
                if record.epoch == epoch and name in record.confusions
            ]
            for epoch in epochs
        }
        scores[name] = {
            mean: tuple(stat(100 * getattr(each, mean) for each in found[epoch]) for epoch in epochs)
            for mean in MEANS
        }
    return Trajectory(label, step, epochs, scores)


def trajectory_charts(comparison: Comparison) -> list[Chart]:
    """Old and new classes over the epochs of each step, a line per strategy."""
    charts = []
    for entry in comparison.entries:
        for found in trajectories(entry.label, entry.runs):
            limit = axis_limit(
                value for scores in found.scores.values() for mean in TITLES for value in scores[mean]
            )
            for mean, what in TITLES.items():
                lines = [
                    Line(name, scores[mean], index)
                    for index, (name, scores) in enumerate(found.scores.items())
                ]
                title = f"{found.label}, step {found.step}: {what}"
                charts.append(line_chart({title: lines}, limit, found.epochs, "epochs of the step"))
    return charts


def strategy_sheet(found: Sequence[Trajectory], where: str) -> Sheet:
    """The first and the last test of each step by every strategy."""
    rows = []
    for each in found:
        for name, scores in each.scores.items():
            for at in (0, -1):
                label = f"step {each.step}, {name}, epoch {each.epochs[at]}"
                rows.append((label, tuple(scores[mean][at] for mean in MEANS)))
    return Sheet(
        title="Figure 5, the old model at test time",
        heads=(("", "old"), ("", "new"), ("", "all")),
        decimals=(1, 1, 1),
        rows=tuple(rows),
        caption=(where,),
    )
