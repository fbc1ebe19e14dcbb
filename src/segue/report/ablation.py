"""Tables of ablations: the paper's numbers and ours side by side, never mixed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table

from segue.core.ablation import AblationTable
from segue.core.metrics import step_scores
from segue.core.records import RunRecord
from segue.report.agreement import order_text
from segue.report.comparison import Stat, stat
from segue.report.markdown import generated_page, sheet_markdown
from segue.report.tables import MEANS, Sheet, sheet_table
from segue.report.trajectory import strategy_sheet, trajectories


@dataclass(frozen=True)
class Ablation:
    """A table with the finished runs of each of its rows."""

    name: str
    table: AblationTable
    setting: str
    """data set, split and mode of our runs"""
    runs: tuple[tuple[RunRecord, ...], ...]

    def ours(self, row: int) -> tuple[Stat, ...]:
        """old, new and all at the end, in percent, over the seeds."""
        finals = [
            step_scores(run.steps[-1].matrix, len(run.steps[-1].groups[0]))
            for run in self.runs[row]
            if run.finished
        ]
        return tuple(stat(100 * score(final) for final in finals) for score in MEANS.values())

    @property
    def tested(self) -> str:
        """On which images, if not simply on the test images."""
        usual = "the test images"
        found = {run.steps[-1].policy.get("tested", usual) for runs in self.runs for run in runs if run.steps}
        return "" if found == {usual} else " and ".join(sorted(found))

    def paper(self, row: int) -> tuple[Stat, ...]:
        where = self.table.paper_setting(self.setting)
        return tuple(map(Stat, self.table.rows[row].paper.get(where, (math.nan,) * len(MEANS))))


def ablation_table(ablation: Ablation) -> Table:
    return sheet_table(ablation_sheet(ablation), first="row")


def ablation_markdown(ablation: Ablation) -> str:
    return sheet_markdown(ablation_sheet(ablation), first="row")


def ablation_sheet(ablation: Ablation) -> Sheet:
    where = ablation.table.paper_setting(ablation.setting)
    has_paper = any(row.paper for row in ablation.table.rows)
    count = max(len(runs) for runs in ablation.runs)
    failed = [
        row.name
        for row, runs in zip(ablation.table.rows, ablation.runs, strict=True)
        if len(runs) < count or not all(run.finished for run in runs)
    ]
    heads = [("ours", name) for name in MEANS] + [("paper", name) for name in MEANS] * has_paper
    rows = []
    for index, row in enumerate(ablation.table.rows):
        rows.append((row.name, ablation.ours(index) + ablation.paper(index) * has_paper))
    seeds = f"mean ± standard deviation of {count} seeds" if count > 1 else "one seed"
    where_ours = f"{ablation.setting}, on {ablation.tested}" if ablation.tested else ablation.setting
    caption = [f"Ours: {where_ours}, {seeds}, mean IoU in percent without background."]
    if failed:
        caption.append(f"Not all runs are finished: {', '.join(failed)}.")
    if has_paper:
        caption.append(f"Paper: {where}.")
    if has_paper and count > 1:
        caption.append(_agreement(ablation))
    return Sheet(
        title=ablation.table.title,
        heads=tuple(heads),
        decimals=(1,) * len(heads),
        rows=tuple(rows),
        caption=tuple(caption),
    )


def _agreement(ablation: Ablation) -> str:
    """Which pairs of rows stand the other way round here, by more than their spread."""
    names = [row.name for row in ablation.table.rows]
    ours, paper = (
        [score(index)[2] for index in range(len(names))] for score in (ablation.ours, ablation.paper)
    )
    return order_text(
        {name: each.mean for name, each in zip(names, paper, strict=True)},
        dict(zip(names, ours, strict=True)),
    )


def _strategies(ablations: Sequence[Ablation]) -> list[str]:
    """The test-time strategies of the first row whose runs were tested during their steps."""
    for ablation in ablations:
        # the last of several is the most complete one
        for row, runs in reversed(list(zip(ablation.table.rows, ablation.runs, strict=True))):
            if found := trajectories(row.name, runs):
                where = (
                    f"{row.name}, {ablation.setting}, {len(runs)} seeds. The paper shows this as curves on"
                    " VOC 15-5: concat ahead on old classes in the first epochs, no difference at the end,"
                    " zero slightly behind."
                )
                return [sheet_markdown(strategy_sheet(found, where), first="test")]
    return []


def ablation_page(ablations: Sequence[Ablation], command: str) -> str:
    """All tables as one Markdown page."""
    parts = [
        "Every row is CAF with the settings that `recipes/ablations` names, in the variant `segue` unless it"
        " says otherwise. The paper's numbers belong to its own data and network: compare the order of rows,"
        " not the values.",
        *(ablation_markdown(ablation) for ablation in ablations),
        *_strategies(ablations),
    ]
    return generated_page("Ablations", command, parts)
