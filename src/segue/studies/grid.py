"""The runs that a table or figure of the paper needs at a scale, and the cells that they fill."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from segue.core.config import RunConfig
from segue.core.paper import Block, PaperItem, PaperRow, column_value, split_sizes
from segue.core.records import RunRecord, StepRecord
from segue.engine.folder import plain_name
from segue.report.comparison import Stat, stat
from segue.report.paper_table import Cell, FilledRow, FilledTable, Sources
from segue.studies.requests import setting_text
from segue.studies.scale import Scale, expected_of, recipe_of, row_label


@dataclass(frozen=True)
class Wanted:
    """A run of a row in a block: one seed, one class order."""

    row: str
    block: str
    seed: int
    order: str
    recipe: RunConfig
    place: Path


@dataclass
class Grid:
    """All runs of an item at a scale."""

    name: str
    item: PaperItem
    scale: Scale
    seeds: int
    wanted: list[Wanted]
    found: dict[Path, RunRecord] = field(default_factory=dict)
    """finished runs, by the place where they were wanted"""

    @property
    def missing(self) -> dict[Path, RunConfig]:
        if self.item.kind == "distribution":  # needs images and no run
            return {}
        return {each.place: each.recipe for each in self.wanted if each.place not in self.found}

    def records(self, row: str, block: str) -> list[list[RunRecord]]:
        """Finished runs of each seed that has all its class orders."""
        seeds: dict[int, list[RunRecord | None]] = {}
        for each in self.wanted:
            if (each.row, each.block) == (row, block):
                seeds.setdefault(each.seed, []).append(self.found.get(each.place))
        return [[run for run in runs if run] for runs in seeds.values() if all(runs)]

    def cells(self, name: str, block: str) -> tuple[Cell, ...]:
        row, columns = self.item.rows[name], self.item.blocks[block].columns
        printed = row.paper.get(block, (None,) * len(columns))
        runs = self.records(name, block)
        setting, _ = self.scale.setting(self.item.blocks[block].setting)
        found = []
        for what, number in zip(columns.values(), printed, strict=True):
            values = [_mean(_value(run, row, what, setting.split) for run in orders) for orders in runs]
            ours = stat(values) if values else Stat(math.nan)
            found.append(Cell(math.nan if number is None else number, ours, len(runs)))
        return tuple(found)

    def sources(self, out: Path) -> Sources:
        """How many runs lie below `out`, and how many elsewhere: in the stored results."""
        here = sum(run.folder.is_relative_to(out) for run in self.found.values())
        return Sources(len(self.found) - here, here, len(self.missing))

    def table(self, out: Path, notes: Sequence[str] = ()) -> FilledTable:
        rows = tuple(
            FilledRow(name, row, {block: self.cells(name, block) for block in self.item.blocks})
            for name, row in self.item.rows_at(self.scale.name).items()
        )
        once = expected_of(self.scale.name)
        return FilledTable(
            self.name,
            self.item,
            self.scale.name,
            self.scale.about,
            rows,
            tuple(notes),
            self.sources(out),
            once.tables.get(self.name, {}),
            once.tolerance,
        )

    @property
    def instead(self) -> list[str]:
        """What stands for the paper's data."""
        found = []
        for block in self.item.blocks.values():
            setting, mode = self.scale.setting(block.setting)
            name = setting.folder or setting.dataset
            if setting.instead:
                found.append(f"{block.setting}: {name} {setting.split} {mode} ({setting.instead})")
        return list(dict.fromkeys(found))


def make_grid(
    name: str, item: PaperItem, scale: Scale, seeds: int, out: Path, words: Sequence[str] = ()
) -> Grid:
    """The runs of an item; rows of several items that are the same experiment share a place."""
    wanted: list[Wanted] = []
    seeds = 1 if item.kind in ("pictures", "distribution") else seeds
    for block_name, block in item.blocks.items():
        for row_name, row in item.rows_at(scale.name).items():
            wanted += _runs(item, row_name, row, block_name, block, scale, seeds, out, words)
    return Grid(name, item, scale, seeds, wanted)


def _runs(
    item: PaperItem,
    row_name: str,
    row: PaperRow,
    block_name: str,
    block: Block,
    scale: Scale,
    seeds: int,
    out: Path,
    words: Sequence[str],
) -> Iterator[Wanted]:
    setting, _ = scale.setting(block.setting)
    for order in setting.orders or ("",):
        first = recipe_of(item, row, scale, block.setting, "" if order == "a" else order, words)
        for seed in range(seeds):
            recipe = replace(first, train=replace(first.train, seed=seed))
            place = out / scale.name / _folder(recipe) / f"{row_label(row)}-s{seed}"
            yield Wanted(row_name, block_name, seed, order, recipe, place)


def _folder(recipe: RunConfig) -> str:
    """Data set, split, mode and class order."""
    order = recipe.scenario.order
    return plain_name([setting_text(recipe), *([order] if isinstance(order, str) else [])])


def _value(run: RunRecord, row: PaperRow, what: str, split: str) -> float:
    record: StepRecord = run.steps[-1 if row.after is None else row.after]
    classes = len(run.steps[-1].classes) - 1
    return column_value(record, what, split_sizes(split, classes))


def _mean(values: Iterator[float]) -> float:
    """Mean over class orders; NaN if one of them has no value."""
    known = list(values)
    return sum(known) / len(known)


def distinct(grids: Sequence[Grid]) -> Mapping[Path, RunConfig]:
    """The missing runs of several items, each once."""
    return {place: recipe for grid in grids for place, recipe in grid.missing.items()}
