"""A table or figure of the paper as a file: its rows and column blocks, and the printed numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from segue.core.config import validate
from segue.core.errors import UserError
from segue.core.expected import Numbers
from segue.core.metrics import group_means, iou, mean
from segue.core.records import StepRecord, read_yaml

Kind = Literal["table", "distribution", "trajectory", "sensitivity", "pictures"]


@dataclass(frozen=True)
class Block:
    """A block of columns: one setting of the paper."""

    setting: str
    """data set, split and mode"""
    columns: dict[str, str]
    """mean by the printed head: `step N` (classes that arrived then), `later`, `all`, or `class NAME`"""


@dataclass(frozen=True)
class PaperRow:
    """A row: a method, or CAF with some of its parts."""

    run: str = ""
    """method, or row that a recipe's section `methods` names"""
    part: str = ""
    """row of the item's ablation table, by its `run`"""
    label: str = ""
    """first part of the run folders, if not the run or part"""
    words: tuple[str, ...] = ()
    """further settings of its runs"""
    params: dict[str, Any] = field(default_factory=dict)
    """settings of the method, over those of the part"""
    times: dict[str, float] = field(default_factory=dict)
    """factors on settings of the recipe, instead of those of the part"""
    after: int | None = None
    """step after which the row is tested; None: the last one"""
    section: str = ""
    """heading above this row"""
    reference: bool = False
    """a bound or a starting point, never the best of a column"""
    only: tuple[str, ...] = ()
    """scales that have this row, if not all"""
    paper: dict[str, Numbers] = field(default_factory=dict)
    """printed numbers by block"""


@dataclass(frozen=True)
class PaperItem:
    """A table, or a figure with the runs that it shows."""

    title: str
    kind: Kind
    blocks: dict[str, Block] = field(default_factory=dict)
    rows: dict[str, PaperRow] = field(default_factory=dict)
    parts: tuple[str, ...] = ()
    """ablation tables that its rows come from"""
    show: Literal["predictions", "attention", "steps", "attention over steps"] = "predictions"
    """content of the pictures of a figure"""
    images: int = 2
    """number of test images in a figure, for each block"""
    text: dict[str, str] = field(default_factory=dict)
    """paragraph on agreement with the paper, by scale"""

    def rows_at(self, scale: str) -> dict[str, PaperRow]:
        return {name: row for name, row in self.rows.items() if not row.only or scale in row.only}


def read_item(path: str | Path) -> PaperItem:
    """An item; what does not fit together in its file is said with the file's name."""
    document = dict(read_yaml(path))
    document["blocks"] = _each(Block, document.get("blocks"), f"{path}: blocks")
    document["rows"] = _each(PaperRow, document.get("rows"), f"{path}: rows")
    item = validate(PaperItem, document, "")
    for name, row in item.rows.items():
        if bool(row.run) == bool(row.part):
            raise UserError(f"{path}: row '{name}' should name either a 'run' or a 'part'.")
        _check_numbers(item, f"{path}: row '{name}'", row.paper)
    return item


def _check_numbers(item: PaperItem, where: str, numbers: Mapping[str, Sequence[Any]]) -> None:
    for block, values in numbers.items():
        if block not in item.blocks or len(values) != len(item.blocks[block].columns):
            raise UserError(f"{where}: the numbers of '{block}' do not fit the columns of the table.")


def _each(kind: type, values: Any, where: str) -> dict[str, Any]:
    if not isinstance(values or {}, Mapping):
        raise UserError(f"{where} is a section: write '{{name: {{key: value}}}}'.")
    found: dict[str, Any] = {}
    for name, section in (values or {}).items():
        if not isinstance(section, Mapping):
            raise UserError(f"{where}: '{name}' is a section: write '{name}: {{key: value}}'.")
        found[str(name)] = validate(kind, section, f"{where}: {name}")
    return found


def column_value(record: StepRecord, what: str, sizes: Sequence[int]) -> float:
    """A mean of a table in percent, from the record of a step; NaN where the record has no such class."""
    matrix = record.matrix
    if what == "all":
        return 100 * mean(iou(matrix)[1:]) if len(matrix) == 1 + sum(sizes) else math.nan
    if what == "later":
        later = iou(matrix)[1 + sizes[0] :]
        return 100 * mean(later) if len(matrix) == 1 + sum(sizes) else math.nan
    kind, _, name = what.partition(" ")
    if kind == "step" and name.isdecimal():
        means = group_means(matrix, sizes)
        return 100 * means[int(name)] if int(name) < len(means) else math.nan
    if kind == "class":
        known = list(record.classes)
        return 100 * float(iou(matrix)[known.index(name)]) if name in known else math.nan
    raise UserError(f"'{what}' is no mean of a table: say step N, later, all or class NAME.")


def split_sizes(split: str, classes: int) -> tuple[int, ...]:
    """Numbers of classes that a split such as 15-5 brings at each step."""
    first, step = map(int, split.split("-"))
    starts = np.array([0, *range(first, classes, max(step, 1)), classes])
    return tuple(int(size) for size in np.diff(starts))
