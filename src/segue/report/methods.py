"""Many methods in one setting or several: a line for each, and a page with what their papers say."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from rich.table import Table

from segue.core.config import RunConfig
from segue.core.records import RunRecord
from segue.core.remarks import PaperNumbers, Remarks
from segue.report.charts import Chart
from segue.report.comparison import Comparison, Entry, Stat, compare
from segue.report.line_charts import steps_chart
from segue.report.markdown import generated_page, sheet_markdown, without_html
from segue.report.paired import paired_sheet
from segue.report.plane_chart import plane_chart
from segue.report.ranks import rank_chart
from segue.report.settings import settings_table
from segue.report.tables import (
    EXPLAINED,
    EXPLAINED_STEPS,
    FINALS,
    MEANS,
    OVER_STEPS,
    Sheet,
    convention,
    sheet_table,
)

HEADS = (
    *(("mean IoU", name) for name in MEANS),
    ("points", "forgetting"),
    ("train", "min"),
    ("peak", "MiB"),
)


KEPT = ("kept", "KiB")


@dataclass(frozen=True)
class MethodTable:
    """The runs of each method in one setting, in the order of the rows."""

    setting: str
    """data set, split and mode"""
    seeds: int
    """how many runs each method should have"""
    runs: Mapping[str, tuple[RunRecord, ...]]
    recipes: Mapping[str, RunConfig] = field(default_factory=dict)
    """recipe of each method, with any of its seeds"""
    keeps: Mapping[str, str] = field(default_factory=dict)
    """state that each method keeps between steps"""
    remarks: Remarks = field(default_factory=Remarks)
    """remarks written by a person"""
    folder: str = "runs"
    """name of the folder that the runs lie in"""

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
        """Forgetting in points; minutes and MiB after step 0, one number each."""
        entry = self.entries.get(method)
        if entry is None:
            return (Stat(math.nan),) * 3
        forgotten = entry.incremental_stat(lambda s: s.forgetting).scaled(100)
        return forgotten, Stat(entry.later_minutes()), Stat(entry.later_mib().mean)

    def others(self, method: str) -> tuple[Stat, ...]:
        """Means with background, their harmonic mean, and the average over steps, in percent."""
        entry = self.entries.get(method)
        if entry is None:
            return (Stat(math.nan),) * (len(FINALS) + 1)
        scores = [entry.final_stat(score, None) for score in FINALS.values()]
        return tuple(each.scaled(100) for each in (*scores, entry.incremental_stat(lambda s: s.average)))

    def charts(self, page: str) -> dict[str, Chart]:
        """What there is to draw, by its file beside a page of this name: lines over more than two steps, and
        old against new classes."""
        steps = self.comparison.num_steps
        drawn = [
            steps_chart(self.setting, self.entries, steps) if steps > 2 else None,
            plane_chart(self.setting, self.entries, steps),
        ]
        return {
            f"figures/{page}-{self.folder}-{chart.name}.svg": chart for chart in drawn if chart is not None
        }


def methods_table(table: MethodTable) -> Table:
    return sheet_table(methods_sheet(table), beside=True)


def methods_sheet(table: MethodTable) -> Sheet:
    """Scores at the end, what was forgotten, and the cost."""
    missing = {name: table.missing(name) for name in table.runs}
    rows = [
        (f"{name} *" if missing[name] else name, (*table.ours(name), *table.costs(name)))
        for name in table.runs
    ]
    caption = [
        f"In percent, after the last step. {_seeds(table)} {convention(table.comparison)}",
        "forgetting: best IoU of a class at an earlier step - IoU at the end."
        " min (median), MiB: of training after step 0; of Joint's only step.",
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


def others_sheet(table: MethodTable) -> Sheet:
    """Other means than those of the first table, and what each method keeps to reach them."""
    kept = {name: Stat(entry.kept_kib().mean) for name, entry in table.entries.items()}
    told = any(not math.isnan(size.mean) for size in kept.values())
    names = {name: f"{name}: {table.keeps[name]}" if name in table.keeps else name for name in table.runs}
    return Sheet(
        title="With background, and over the steps",
        heads=(*FINALS, OVER_STEPS, *([KEPT] if told else [])),
        decimals=(1,) * (len(FINALS) + 1 + told),
        rows=tuple(
            (names[name], (*table.others(name), *([kept.get(name, Stat(math.nan))] if told else [])))
            for name in table.runs
        ),
        caption=(
            f"In percent. {_seeds(table)} {EXPLAINED} {EXPLAINED_STEPS}",
            *(["kept KiB: state beside the model that outlives a step, without images."] if told else []),
        ),
    )


def _seeds(table: MethodTable) -> str:
    return f"Mean ± standard deviation of {table.seeds} seeds." if table.seeds > 1 else "One seed."


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


def ranks_chart(tables: Sequence[MethodTable], page: str) -> dict[str, Chart]:
    """Mean ranks over several settings by the mean of all classes, by its file; Joint has no rank."""
    scores = {
        table.setting: {
            name: table.ours(name)[-1].mean for name, entry in table.entries.items() if not entry.offline
        }
        for table in tables
        if table.entries
    }
    chart = rank_chart("Methods", scores)
    return {} if chart is None else {f"figures/{page}-ranks.svg": chart}


def methods_page(tables: Sequence[MethodTable], command: str, page: str) -> str:
    """The tables of all settings as Markdown, for a page of this name."""
    alone = len(tables) == 1
    title = tables[0].setting if alone else tables[0].comparison.dataset
    parts = [f"![{without_html(chart.alt)}]({file})" for file, chart in ranks_chart(tables, page).items()]
    for table in tables:
        parts += [] if alone else [f"## {without_html(table.setting)}"]
        parts += _section(table, page)
    return generated_page(f"Methods on {title}", command, parts)


def _section(table: MethodTable, page: str) -> list[str]:
    """Scores, charts, the papers' numbers, remarks, and at the end the settings."""
    parts = []
    parts += [
        sheet_markdown(methods_sheet(table)),
        sheet_markdown(others_sheet(table), "method: what it keeps between steps"),
    ]
    if (paired := paired_sheet(table.comparison, table.entries)) is not None:
        parts.append(sheet_markdown(paired))
    parts += [f"![{without_html(chart.alt)}]({file})" for file, chart in table.charts(page).items()]
    if table.remarks.paper is not None:
        parts.append(sheet_markdown(paper_sheet(table, table.remarks.paper)))
    said = table.remarks.remarks
    lines = [f"* **{name}**: {' '.join(said[name].split())}" for name in table.runs if name in said]
    parts += ["\n".join(lines)] if lines else []
    if table.recipes:
        parts += [
            "**Settings**",
            settings_table(table.recipes, table.entries),
            "Settings other than the defaults, and the usual ones; the methods' own parameters are left out.",
        ]
    return parts
