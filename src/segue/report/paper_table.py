"""A table of the paper filled with our numbers, in its own layout: what it says of every row."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from segue.core.expected import Numbers, Rows, as_numbers
from segue.core.paper import PaperItem, PaperRow
from segue.report.agreement import order_text
from segue.report.comparison import Stat

NOISE = 2.0
"""standard deviations of our seeds within which a difference counts as noise"""
REPRODUCED, WITHIN_NOISE, DIFFERS, NOT_RUN, NEW = (
    "reproduced",
    "within noise",
    "differs",
    "not run",
    "no value to compare with",
)
BROKEN = {DIFFERS, NOT_RUN}


@dataclass(frozen=True)
class Cell:
    """The paper's number and ours, in percent; NaN where there is none."""

    paper: float
    ours: Stat
    seeds: int

    @property
    def run(self) -> bool:
        return not math.isnan(self.ours.mean)


@dataclass(frozen=True)
class Target:
    """A number that ours is held against."""

    block: str
    head: str
    value: float
    cell: Cell

    @property
    def off(self) -> float:
        return abs(self.cell.ours.mean - self.value)


@dataclass(frozen=True)
class FilledRow:
    """A row with its cells, by block."""

    name: str
    row: PaperRow
    cells: Mapping[str, tuple[Cell, ...]]

    @property
    def blocks_run(self) -> int:
        return sum(any(cell.run for cell in cells) for cells in self.cells.values())


@dataclass(frozen=True)
class Status:
    """What came of a row."""

    kind: str
    text: str
    expected: bool
    """whether the row was once reproduced at this scale"""


@dataclass(frozen=True)
class Sources:
    """Where the runs of a table come from."""

    stored: int
    """runs of the stored results"""
    here: int
    """runs that were carried out in the folder of this request"""
    missing: int

    @property
    def text(self) -> str:
        return (
            f"Runs: {self.stored} from the stored results, {self.here} carried out here,"
            f" {self.missing} missing."
        )


@dataclass(frozen=True)
class FilledTable:
    """A table of the paper at a scale."""

    name: str
    item: PaperItem
    scale: str
    about: str
    rows: tuple[FilledRow, ...]
    notes: tuple[str, ...]
    sources: Sources
    expected: Rows
    """means that were once reached at this scale, by row and block"""
    tolerance: float
    """points by which a mean may miss them"""

    @property
    def title(self) -> str:
        return f"{self.item.title}, at scale {self.scale}"

    def columns(self) -> Iterator[tuple[str, int, str]]:
        """Block, position in the block and head of every column."""
        for name, block in self.item.blocks.items():
            for position, head in enumerate(block.columns):
                yield name, position, head

    def best(self) -> set[tuple[str, str, int]]:
        """Row, block and position of the best of our printed means in each column, without bounds."""
        found = set()
        for block, position, _ in self.columns():
            means = {
                row.name: round(row.cells[block][position].ours.mean, 1)
                for row in self.rows
                if not row.row.reference and row.cells[block][position].run
            }
            if len(means) > 1:
                top = max(means.values())
                found |= {(name, block, position) for name, mean in means.items() if mean == top}
        return found

    def status(self, row: FilledRow) -> Status:
        """Held against what was once reached here or, at the paper's own scale, against the paper."""
        once = row.name in self.expected
        if once:
            targets, tolerance = list(self._targets(row, self.expected[row.name])), self.tolerance
        elif self.scale == "paper":
            targets, tolerance = list(self._targets(row, row.row.paper)), PAPER_TOLERANCE
            targets = [target for target in targets if target.cell.run]
        else:
            targets, tolerance = [], 0.0
        if not row.blocks_run:
            return Status(NOT_RUN, NOT_RUN, once)
        count = (
            f" ({row.blocks_run} of {len(row.cells)} settings run)" if row.blocks_run < len(row.cells) else ""
        )
        if not targets:
            return Status(NEW, NEW + count, once)
        if lost := [target for target in targets if not target.cell.run]:
            where = " and ".join(dict.fromkeys(target.block for target in lost))
            return Status(NOT_RUN, f"not run any more: {where}", once)
        outside = [target for target in targets if target.off > tolerance]
        if not outside:
            return Status(REPRODUCED, ("our own value " if once else "") + REPRODUCED + count, once)
        if all(target.off <= NOISE * target.cell.ours.std for target in outside):
            return Status(WITHIN_NOISE, WITHIN_NOISE + count, once)
        worst = max(outside, key=lambda target: target.off)
        sentence = (
            f"{worst.block} {worst.head} is {worst.cell.ours.mean:.1f}, expected {worst.value:.1f}"
            f" (tolerance {tolerance:g})"
        )
        return Status(DIFFERS, f"differs: {sentence}{count}", once)

    def _targets(self, row: FilledRow, numbers: Mapping[str, Numbers]) -> Iterator[Target]:
        for block, position, head in self.columns():
            value = numbers.get(block, (None,) * (position + 1))[position]
            if value is not None:
                yield Target(block, head, value, row.cells[block][position])

    def broken(self) -> list[str]:
        """Rows that were once reproduced and are not any more, with the reason."""
        states = {row.name: self.status(row) for row in self.rows}
        return [
            f"{name}: {state.text}"
            for name, state in states.items()
            if state.expected and state.kind in BROKEN
        ]

    def scores(self) -> dict[str, dict[str, float]]:
        """Our means of the last column of each block that was run, by row; without bounds."""
        found = {
            block: {
                row.name: row.cells[block][-1].ours.mean
                for row in self.rows
                if not row.row.reference and row.cells[block][-1].run
            }
            for block in self.item.blocks
        }
        return {block: rows for block, rows in found.items() if rows}

    def reached(self) -> Rows:
        """Today's means of every row that was run, as values for later checks."""
        found = {
            row.name: as_numbers(
                {block: tuple(cell.ours.mean for cell in row.cells[block]) for block in row.cells}
            )
            for row in self.rows
        }
        return {name: numbers for name, numbers in found.items() if numbers}

    def document(self) -> dict[str, Any]:
        """The table for JSON."""
        rows = []
        for row in self.rows:
            cells = {
                f"{block} {head}": {
                    "paper": cell.paper,
                    "ours": cell.ours.mean,
                    "std": cell.ours.std,
                    "seeds": cell.seeds,
                }
                for block, position, head in self.columns()
                for cell in [row.cells[block][position]]
            }
            rows.append({"name": row.name, "status": self.status(row).text, "cells": cells})
        runs = asdict(self.sources)
        return {"item": self.name, "title": self.title, "runs": runs, "rows": rows, "notes": self.notes}

    def agreement(self) -> list[str]:
        """For each block, how our rows stand in the paper's order of its last column."""
        found = []
        for block in self.item.blocks:
            rows = [row for row in self.rows if not row.row.reference]
            last = {row.name: row.cells[block][-1] for row in rows}
            known = {name: cell for name, cell in last.items() if cell.run and not math.isnan(cell.paper)}
            if len(known) > 1:
                paper = {name: cell.paper for name, cell in known.items()}
                ours = {name: cell.ours for name, cell in known.items()}
                found.append(f"{block}: {order_text(paper, ours)}")
        return found


PAPER_TOLERANCE = 1.0
"""points of mean IoU by which a run at the paper's scale may miss the printed number"""
