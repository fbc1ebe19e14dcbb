"""The two tables: scores after each step, and everything else that is said about a finished run.

A `Sheet` holds numbers and texts; the terminal and the web page show the same sheets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table
from rich.text import Text

from segue.core.metrics import RunScores
from segue.core.records import RunRecord
from segue.report.comparison import Comparison, Entry, Stat, compare, format_number

MAX_STEPS = 4
"""most steps that a table shows in full; of more it shows the first, the last and the average"""

LEAST_WIDTH = 60
"""columns of a table in the terminal"""

MEANS = {"old": lambda s: s.old, "new": lambda s: s.new, "all": lambda s: s.all}

FINALS: dict[tuple[str, str], Callable[[RunScores], float]] = {
    ("old", "+bg"): lambda s: s.final.old_bg,
    ("all", "+bg"): lambda s: s.final.all_bg,
    ("h", "IoU"): lambda s: s.final.h,
}
"""further means at the end"""
OVER_STEPS = ("mean", "steps")
LATER: dict[tuple[str, str], Callable[[RunScores], float]] = {
    OVER_STEPS: lambda s: s.average,
    ("", "BWT"): lambda s: s.backward_transfer,
    ("sta-", "bility"): lambda s: s.stability,
    ("plas-", "ticity"): lambda s: s.plasticity,
    ("gap to", "Joint"): lambda s: s.gap_to_joint,
}
"""scores that one step alone does not have"""
EXPLAINED_STEPS = "mean steps: all, averaged over the steps."
EXPLAINED_LATER = (
    f"{EXPLAINED_STEPS} BWT: backward transfer, the change since a class was learned. stability: old at the"
    " end / old after step 0. plasticity: new / new of Joint. gap: all of Joint - all."
)
EXPLAINED = "+bg counts background as a class. hIoU: harmonic mean of old and new."
"""meaning of these columns"""


@dataclass(frozen=True)
class Sheet:
    """A table without its looks; `heads` are (upper, lower) words, equal upper neighbours belong together."""

    title: str
    heads: tuple[tuple[str, str], ...]
    decimals: tuple[int, ...]
    rows: tuple[tuple[str, tuple[Stat, ...]], ...]
    caption: tuple[str, ...]


def results_table(runs: Sequence[RunRecord]) -> Table:
    """old / new / all of each method after each step, and what it forgot; 80 columns wide for three steps."""
    return sheet_table(results_sheet(compare(runs)))


def metrics_table(runs: Sequence[RunRecord]) -> Table:
    """The other scores of the finished runs, and their cost."""
    return sheet_table(metrics_sheet(compare(runs)))


def results_sheet(comparison: Comparison) -> Sheet:
    last = comparison.num_steps - 1
    shown = list(range(last + 1)) if last < MAX_STEPS else [0, last]
    # After step 0 there are no new classes, and all is old: one column says it.
    columns = [(step, name) for step in shown for name in (MEANS if step else ["old"])]
    finals: list[tuple[tuple[str, str], Callable[[RunScores], float]]] = []
    if last >= MAX_STEPS:
        finals.append((("over steps", "average"), lambda s: s.average))
    if last:
        finals.append((("points", "forgetting"), lambda s: s.forgetting))
    rows = []
    for entry in comparison.entries:
        cells = [entry.step_stat(step, MEANS[name]) for step, name in columns]
        cells += [entry.incremental_stat(score, comparison.joint) for _, score in finals]
        rows.append((_label(entry), tuple(cell.scaled(100) for cell in cells)))
    heads = (*((f"step {step}", name) for step, name in columns), *(head for head, _ in finals))
    return Sheet(
        title=f"Mean IoU in percent: {comparison.title}",
        heads=heads,
        decimals=(1,) * len(heads),
        rows=tuple(rows),
        caption=(convention(comparison), *_remarks(comparison)),
    )


def metrics_sheet(comparison: Comparison) -> Sheet:
    joint = comparison.joint
    later = LATER if comparison.num_steps > 1 else {}
    rows = []
    for entry in comparison.entries:
        scores = [
            *(entry.final_stat(score, None) for score in FINALS.values()),
            *(entry.incremental_stat(score, joint) for score in later.values()),
        ]
        costs = (entry.train_minutes(), entry.peak_mib())
        rows.append((_label(entry), (*(score.scaled(100) for score in scores), *costs)))
    return Sheet(
        title=f"At the end, in percent: {comparison.title}",
        heads=(*FINALS, *later, ("train", "min"), ("peak", "MiB")),
        decimals=(*(1,) * (len(FINALS) + len(later) + 1), 0),
        rows=tuple(rows),
        caption=(f"{EXPLAINED} {EXPLAINED_LATER}" if later else EXPLAINED, *_remarks(comparison)),
    )


def convention(comparison: Comparison) -> str:
    """What the words old, new and all mean."""
    text = "old: classes of step 0; new: later ones; all: both; background is left out."
    if any(entry.offline for entry in comparison.entries):
        text += " Joint is trained once on everything."
    return text


def _remarks(comparison: Comparison) -> tuple[str, ...]:
    """What holds for single rows."""
    several = any(len(entry.runs) > 1 for entry in comparison.entries)
    spread = ("±: standard deviation over runs with other seeds.",) if several else ()
    return (*spread, *comparison.notes)


def _label(entry: Entry) -> str:
    return entry.label + ("" if len(entry.finished) == len(entry.runs) else " *")


def sheet_table(sheet: Sheet, first: str = "method", beside: bool = False) -> Table:
    """A sheet for the terminal, deviations below the means or, where there is room, `beside` them."""
    table = Table(
        title=Text(sheet.title, style="bold"),
        caption=Text("\n".join(["", *sheet.caption]), style="dim"),
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1 if len(sheet.heads) <= 10 else 0),  # so that four steps fit 80 columns as well
        collapse_padding=True,
        pad_edge=False,
        show_edge=False,
        min_width=LEAST_WIDTH,  # a caption in a narrow table is a column of single words
    )
    table.add_column(Text(f"\n{first}"), overflow="fold", min_width=6)
    previous = ""
    for upper, lower in sheet.heads:
        table.add_column(
            Text(f"{upper if upper != previous else ''}\n{lower}"), justify="right", no_wrap=True
        )
        previous = upper
    columns = [[cells[index] for _, cells in sheet.rows] for index in range(len(sheet.heads))]
    texts = [_column(*pair, beside) for pair in zip(columns, sheet.decimals, strict=True)]
    for index, (label, _) in enumerate(sheet.rows):
        table.add_row(Text(label), *(column[index] for column in texts))
    return table


def _column(cells: Sequence[Stat], decimals: int, beside: bool) -> list[Text]:
    """The cells of a column; deviations beside their means are equally wide, so that the means line up."""
    spreads = ["" if math.isnan(cell.std) else format_number(cell.std, decimals) for cell in cells]
    width = max(map(len, spreads), default=0)
    texts = []
    for cell, spread in zip(cells, spreads, strict=True):
        texts.append(Text(format_number(cell.mean, decimals)))
        if spread:
            texts[-1].append(f" ±{spread:>{width}}" if beside else f"\n±{spread}", style="dim")
    return texts
