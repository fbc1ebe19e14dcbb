"""What was once reached for a table of the paper at a scale: the values that `segue reproduce --verify` holds
today's against.

A file per scale lies beside the items (`expected-SCALE.yaml`). `segue reproduce --accept` writes it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from segue.core.config import validate
from segue.core.errors import UserError
from segue.core.records import atomic_file, read_yaml

Numbers = tuple[float | None, ...]
Rows = Mapping[str, Mapping[str, Numbers]]
PREFIX = "expected-"
HEAD = """\
# Mean IoU in percent that was reached at scale {scale}; the paper's numbers are elsewhere. With --verify,
# `segue reproduce` holds today's runs against them: off by more than `tolerance` points, and by more than two
# standard deviations of the seeds, is an error. Written by `segue reproduce ITEM --scale {scale} --accept`.
"""


@dataclass(frozen=True)
class Expected:
    """The tables of one scale."""

    tolerance: float
    """largest difference of a mean IoU, in points, that still counts as the same"""
    tables: dict[str, dict[str, dict[str, Numbers]]] = field(default_factory=dict)
    """means by table, row and block of columns"""


def read_expected(path: Path) -> Expected:
    """The values of a scale; a file that is not there has none."""
    if not path.is_file():
        return Expected(tolerance=0.0)
    return validate(Expected, read_yaml(path), str(path))


def write_expected(path: Path, scale: str, tolerance: float, tables: Mapping[str, Rows]) -> None:
    """Store values of some tables; those of the other tables stay."""
    kept = read_expected(path).tables
    lines = [HEAD.format(scale=scale) + f"tolerance: {tolerance:g}", "tables:"]
    for name, rows in sorted({**kept, **tables}.items()):
        lines.append(f"  {name}:")
        for row, blocks in rows.items():
            lines.append(f'    "{row}":')
            for block, numbers in blocks.items():
                shown = ", ".join("null" if value is None else f"{value:.1f}" for value in numbers)
                lines.append(f'      "{block}": [{shown}]')
    with atomic_file(path) as file:
        file.write(("\n".join(lines) + "\n").encode())


def as_numbers(means: Mapping[str, tuple[float, ...]]) -> dict[str, Numbers]:
    """Means of a row by block, without blocks that have none; NaN becomes None."""
    found = {
        block: tuple(None if math.isnan(value) else round(value, 1) for value in values)
        for block, values in means.items()
    }
    return {block: values for block, values in found.items() if any(v is not None for v in values)}


def check_expected(path: Path, name: str, rows: Rows, known: Mapping[str, Mapping[str, int]]) -> None:
    """Rows and blocks have to be those of the table; `known`: numbers of columns by row and block."""
    for row, blocks in rows.items():
        if row not in known:
            raise UserError(f"{path}: {name} has no row '{row}'.")
        for block, numbers in blocks.items():
            if known[row].get(block) != len(numbers):
                raise UserError(
                    f"{path}: {name}, row '{row}': the numbers of '{block}' do not fit the columns."
                )
