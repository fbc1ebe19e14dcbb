"""Values that were tried for one weight of each method: scores on held-out images, and which is chosen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import yaml
from rich.table import Table

from segue.core.records import RunRecord
from segue.report.comparison import Comparison, Entry, Stat, compare
from segue.report.markdown import generated_page, sheet_markdown
from segue.report.tables import MEANS, Sheet, convention, sheet_table

FIRST = "method and value"
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
        """old, new and all at the end, in percent."""
        run = self.finished.get((method, value))
        if run is None:
            return (Stat(math.nan),) * len(MEANS)
        entry, last = Entry(method, method, (run,)), self.comparison.num_steps - 1
        return tuple(entry.step_stat(last, score).scaled(100) for score in MEANS.values())

    def chosen(self, method: str) -> float | None:
        """The value with the largest `all`, of equal ones the first; None until all runs are finished."""
        values = list(self.trials[method].runs)
        if any((method, value) not in self.finished for value in values):
            return None
        return max(values, key=lambda value: self.scores(method, value)[-1].mean)

    @property
    def choice(self) -> Choice:
        found = {name: self.chosen(name) for name in self.trials}
        return {name: {self.trials[name].key: value} for name, value in found.items() if value is not None}


def tuning_table(table: TuningTable) -> Table:
    return sheet_table(tuning_sheet(table), FIRST)


def tuning_sheet(table: TuningTable) -> Sheet:
    """A row for each method and value."""
    rows, unfinished, outermost = [], [], []
    for name, trials in table.trials.items():
        values, chosen = list(trials.runs), table.chosen(name)
        if chosen in (values[0], values[-1]):
            outermost.append(name)
        for value in values:
            mark = " ←" if value == chosen else ""
            if (name, value) not in table.finished:
                unfinished.append(f"{name}-{value:g}")
                mark = " *"
            label = f"{name} {trials.key.split('.')[-1]}={value:g}{mark}"
            rows.append((label, table.scores(name, value)))
    caption = [
        f"In percent, after the last step, on {100 * table.hold_out:g} % of the training images, which no"
        f" step trains on. {convention(table.comparison)}",
        "←: chosen, the largest all of the method.",
    ]
    if outermost:
        caption.append(
            f"The first or the last value is chosen for {', '.join(outermost)}: the best may lie outside."
        )
    if unfinished:
        caption.append(
            f"* Runs that are not finished: {', '.join(unfinished)}. Their methods have no choice."
        )
    return Sheet(
        title=f"Tuning: {table.comparison.title}",
        heads=tuple(("mean IoU", name) for name in MEANS),
        decimals=(1,) * len(MEANS),
        rows=tuple(rows),
        caption=(*caption, *table.comparison.notes),
    )


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
        "What is chosen, as the section `methods` of a recipe has it:",
        f"```yaml\n{choice_yaml(table.choice)}```",
    ]
    return generated_page(f"Tuning on {table.setting}", command, parts)
