"""A table of ablations as a file: which settings make each row, and what the paper says of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from segue.core.config import validate
from segue.core.errors import UserError
from segue.core.records import read_yaml


@dataclass(frozen=True)
class Row:
    """One row: CAF with some of its settings changed."""

    name: str
    run: str
    """first part of the run folders; rows of several tables that are the same experiment share it"""
    params: dict[str, Any] = field(default_factory=dict)
    """settings of the method"""
    times: dict[str, float] = field(default_factory=dict)
    """factors on settings of the recipe"""
    paper: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    """the paper's old, new and all, by 'dataset split mode'"""


@dataclass(frozen=True)
class AblationTable:
    title: str
    rows: tuple[Row, ...]
    settings: dict[str, dict[str, str]] = field(default_factory=dict)
    """split and mode by data set"""
    params: dict[str, Any] = field(default_factory=dict)
    """settings of the method in all rows, unless the command or a row says otherwise"""

    def paper_setting(self, asked: str) -> str:
        """The setting of the paper's numbers that stand beside ours: the same one, or the first there is."""
        known = list(dict.fromkeys(setting for row in self.rows for setting in row.paper))
        return asked if asked in known or not known else known[0]


def read_ablation(path: str | Path) -> AblationTable:
    document = read_yaml(path)
    rows = document.get("rows")
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise UserError(f"{path}: 'rows' should be a list of rows.")
    checked = tuple(validate(Row, row, f"rows[{index}]") for index, row in enumerate(rows))
    return validate(AblationTable, document | {"rows": checked}, "")
