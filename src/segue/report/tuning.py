"""Values that were tried for one weight of each method: scores on held-out images, and which is chosen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import yaml
from rich.table import Table

from segue.core.records import RunRecord
from segue.report.comparison import Comparison, Entry, Stat, compare
from segue.report.markdown import generated_page, sheet_markdown
from segue.report.tables import MEANS, Sheet, convention, sheet_table

FIRST = "method and value"
SCORES = {**MEANS, "hIoU": lambda s: s.h}
"""columns of the table"""
CRITERIA = ("all", "hIoU")
"""scores that values are chosen by; a model that learns nothing new may have a fair `all`, but no hIoU"""
MARKS = {"all": "←", "hIoU": "h"}
"""signs of the values that they choose"""
Choice = dict[str, dict[str, float]]
"""{method: {dotted key: value}}, as the section `methods` of a recipe has it"""


@dataclass(frozen=True)
class Trials:
    """What is tried for one method."""

    key: str
    runs: Mapping[float, RunRecord | None]
    """runs by value, in the order of the recipe; None: not begun"""


@dataclass(frozen=True)
class TuningTable:
    """The trials of each method in one setting."""

    setting: str
    """data set, split and mode"""
    hold_out: float
    """share of the training images that the runs are scored on"""
    trials: Mapping[str, Trials]
    by: str = "all"
    """score that the recipe's values are to be chosen by"""
    used: Choice = field(default_factory=dict)
    """values that are used here but were chosen on another split"""

    @cached_property
    def finished(self) -> dict[tuple[str, float], RunRecord]:
        return {
            (name, value): run
            for name, trials in self.trials.items()
            for value, run in trials.runs.items()
            if run is not None and run.finished
        }

    @cached_property
    def comparison(self) -> Comparison:
        """What the finished runs have in common; refuses runs that cannot stand in one table."""
        return compare(list(self.finished.values()))

    def scores(self, method: str, value: float) -> tuple[Stat, ...]:
        """old, new, all and hIoU at the end, in percent."""
        run = self.finished.get((method, value))
        if run is None:
            return (Stat(math.nan),) * len(SCORES)
        entry, last = Entry(method, method, (run,)), self.comparison.num_steps - 1
        return tuple(entry.step_stat(last, score).scaled(100) for score in SCORES.values())

    def chosen(self, method: str, by: str) -> float | None:
        """The value with the largest score, of equal ones the first; None until all runs are finished."""
        values, column = list(self.trials[method].runs), list(SCORES).index(by)
        if any((method, value) not in self.finished for value in values):
            return None
        return max(values, key=lambda value: self.scores(method, value)[column].mean)

    def choice(self, by: str) -> Choice:
        found = {name: self.chosen(name, by) for name in self.trials}
        return {name: {self.trials[name].key: value} for name, value in found.items() if value is not None}


def tuning_table(table: TuningTable) -> Table:
    return sheet_table(tuning_sheet(table), FIRST)


def tuning_sheet(table: TuningTable) -> Sheet:
    """A row for each method and value."""
    rows = [
        (_label(table, name, value), table.scores(name, value))
        for name, trials in table.trials.items()
        for value in trials.runs
    ]
    return Sheet(
        title=f"Tuning: {table.comparison.title}",
        heads=tuple(("mean IoU", name) for name in SCORES),
        decimals=(1,) * len(SCORES),
        rows=tuple(rows),
        caption=(*_caption(table), *table.comparison.notes),
    )


def price_sheet(table: TuningTable) -> Sheet:
    """What methods lose here by values that were chosen elsewhere."""
    column, rows = list(SCORES).index(table.by), []
    for name, trials in table.trials.items():
        best = table.chosen(name, table.by)
        value = table.used.get(name, {}).get(trials.key)
        if best is None or value is None:
            continue
        ours, theirs = (table.scores(name, each)[column] for each in (value, best))
        label = f"{name} {trials.key.split('.')[-1]}={value:g}, here {best:g}"
        rows.append((label, (ours, theirs, Stat(theirs.mean - ours.mean))))
    return Sheet(
        title=f"Price of values chosen on another split: {table.comparison.title}",
        heads=((table.by, "used"), (table.by, "best here"), ("points", "lost")),
        decimals=(1, 1, 1),
        rows=tuple(rows),
        caption=("used: with the value chosen elsewhere; -: that value was not tried here.",),
    )


def _label(table: TuningTable, method: str, value: float) -> str:
    marks = [MARKS[by] for by in CRITERIA if table.chosen(method, by) == value]
    if (method, value) not in table.finished:
        marks = ["*"]
    return " ".join([f"{method} {table.trials[method].key.split('.')[-1]}={value:g}", *marks])


def _caption(table: TuningTable) -> list[str]:
    values = {name: list(trials.runs) for name, trials in table.trials.items()}
    outermost = [
        name for name, (first, *_, last) in values.items() if table.chosen(name, table.by) in (first, last)
    ]
    unfinished = [
        f"{name}-{value:g}"
        for name, trials in table.trials.items()
        for value in trials.runs
        if (name, value) not in table.finished
    ]
    lines = [
        f"In percent, after the last step, on {100 * table.hold_out:g} % of the training images, which no"
        f" step trains on. {convention(table.comparison)}",
        f"{MARKS['all']}: the largest all of the method, {MARKS['hIoU']}: its largest hIoU, the harmonic mean"
        f" of old and new. The values chosen by {table.by} are used.",
    ]
    if outermost:
        lines.append(
            f"The first or the last value is chosen for {', '.join(outermost)}: the best may lie outside."
        )
    if unfinished:
        lines.append(f"* Runs that are not finished: {', '.join(unfinished)}. Their methods have no choice.")
    return lines


def choice_yaml(choice: Choice) -> str:
    return yaml.safe_dump(choice, sort_keys=False, default_flow_style=None, width=200)


def tuning_page(table: TuningTable, command: str) -> str:
    """The table as a Markdown page: how it was made, the scores, the chosen values."""
    budget = len(next(iter(table.trials.values())).runs)
    parts = [
        f"Each method listed has the same number of values, {budget}, of one setting, one run each, seed 0."
        " What else was fixed beforehand is the recipe's, the command's and the methods' defaults. The runs"
        " are scored on training images that were held out:"
        f" `scenario.hold_out={table.hold_out:g}` takes that share by the names of the images, the same for"
        " every method, and no step trains on them (see `docs/protocol.md`). The test images play no part.",
        sheet_markdown(tuning_sheet(table), FIRST),
        *([sheet_markdown(price_sheet(table), FIRST)] if table.used else []),
        *(part for by in sorted(CRITERIA, key=table.by.__ne__) for part in _choice_parts(table, by)),
    ]
    return generated_page(f"Tuning on {table.setting}", command, parts)


def _choice_parts(table: TuningTable, by: str) -> tuple[str, str]:
    use = "used" if by == table.by else "not used"
    text = choice_yaml(table.choice(by))
    return f"Chosen by {by} ({use}), as the section `methods` of a recipe has it:", f"```yaml\n{text}```"
