"""Many methods in one setting: a line for each, and a page with what their papers say."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from rich.table import Table

from segue.core.records import RunRecord
from segue.core.remarks import PaperNumbers, Remarks
from segue.report.comparison import Comparison, Entry, Stat, compare
from segue.report.markdown import sheet_markdown
from segue.report.tables import MEANS, Sheet, convention, sheet_table

HEADS = (
    *(("mean IoU", name) for name in MEANS),
    ("points", "forgetting"),
    ("train", "min"),
    ("peak", "MiB"),
)


@dataclass(frozen=True)
class MethodTable:
    """The runs of each method in one setting, in the order of the rows."""

    setting: str
    """data set, split and mode"""
    seeds: int
    """how many runs each method should have"""
    runs: Mapping[str, tuple[RunRecord, ...]]

    @cached_property
    def entries(self) -> dict[str, Entry]:
        """The methods that have a finished run, with those runs."""
        finished = {name: tuple(run for run in runs if run.finished) for name, runs in self.runs.items()}
        return {name: Entry(name, name, runs) for name, runs in finished.items() if runs}

    @cached_property
    def comparison(self) -> Comparison:
        """What the finished runs have in common; refuses runs that cannot stand in one table."""
        return compare([run for entry in self.entries.values() for run in entry.runs])

    def missing(self, method: str) -> int:
        """How many of its runs are not finished."""
        return self.seeds - sum(run.finished for run in self.runs[method])

    def ours(self, method: str) -> tuple[Stat, ...]:
        """old, new and all at the end, in percent, over the seeds."""
        last = self.comparison.num_steps - 1
        if method not in self.entries:
            return (Stat(math.nan),) * len(MEANS)
        return tuple(self.entries[method].step_stat(last, score).scaled(100) for score in MEANS.values())

    def costs(self, method: str) -> tuple[Stat, ...]:
        """Forgetting in points, minutes and MiB; of the last two only the mean is of interest."""
        entry = self.entries.get(method)
        if entry is None:
            return (Stat(math.nan),) * 3
        forgotten = entry.incremental_stat(lambda s: s.forgetting).scaled(100)
        return forgotten, Stat(entry.train_minutes().mean), Stat(entry.peak_mib().mean)


def methods_table(table: MethodTable) -> Table:
    return sheet_table(methods_sheet(table), beside=True)


def methods_sheet(table: MethodTable) -> Sheet:
    """Scores at the end, what was forgotten, and the cost."""
    missing = {name: table.missing(name) for name in table.runs}
    rows = [
        (f"{name} *" if missing[name] else name, (*table.ours(name), *table.costs(name)))
        for name in table.runs
    ]
    seeds = f"Mean ± standard deviation of {table.seeds} seeds." if table.seeds > 1 else "One seed."
    caption = [
        f"In percent, after the last step. {seeds} {convention(table.comparison)}",
        "forgetting: best IoU of a class at an earlier step - IoU at the end.",
    ]
    if unfinished := [f"{name} ({count} of {table.seeds})" for name, count in missing.items() if count]:
        caption.append(f"* Runs that are not finished: {', '.join(unfinished)}.")
    return Sheet(
        title=f"Methods: {table.comparison.title}",
        heads=HEADS,
        decimals=(1, 1, 1, 1, 1, 0),
        rows=tuple(rows),
        caption=(*caption, *table.comparison.notes),
    )


def paper_sheet(table: MethodTable, paper: PaperNumbers) -> Sheet:
    """Our numbers and those of the papers side by side, never mixed."""
    rows = []
    for name in table.runs:
        theirs = paper.rows.get(name, (None,) * len(MEANS))
        cells = (Stat(math.nan if value is None else value) for value in theirs)
        rows.append((name, (*table.ours(name), *cells)))
    return Sheet(
        title="Beside the papers",
        heads=tuple((whose, name) for whose in ("ours", "paper") for name in MEANS),
        decimals=(1,) * 2 * len(MEANS),
        rows=tuple(rows),
        caption=(
            f"Ours: {table.setting}. Paper: {paper.setting}.",
            "The papers' numbers belong to other data and another network: compare the order of rows, not"
            " the values. A dash: the paper has no number.",
        ),
    )


def methods_page(table: MethodTable, command: str, remarks: Remarks | None = None) -> str:
    """The table as a Markdown page, with what a person has to say about it."""
    remarks = remarks or Remarks()
    parts = [
        f"# Methods on {table.setting}",
        f"Made from the records by `{command}`; do not edit.",
        sheet_markdown(methods_sheet(table)),
    ]
    if remarks.paper is not None:
        parts.append(sheet_markdown(paper_sheet(table, remarks.paper)))
    lines = [
        f"* **{name}**: {' '.join(remarks.remarks[name].split())}"
        for name in table.runs
        if name in remarks.remarks
    ]
    if lines:
        parts.append("\n".join(lines))
    return "\n\n".join(part.strip() for part in parts) + "\n"
