"""The tables as Markdown, for pages that are generated from records."""

from __future__ import annotations

import math
from collections.abc import Sequence

from segue.core.records import RunRecord
from segue.report.comparison import Stat, compare
from segue.report.tables import Sheet, format_number, metrics_sheet, results_sheet


def markdown_tables(runs: Sequence[RunRecord], costs: bool = True) -> str:
    """Scores after each step and, with `costs`, the table of other scores and costs."""
    comparison = compare(runs)
    sheets = [results_sheet(comparison), *([metrics_sheet(comparison)] if costs else [])]
    return "\n".join(sheet_markdown(sheet) for sheet in sheets)


def sheet_markdown(sheet: Sheet, first: str = "method") -> str:
    """A sheet as a Markdown table."""
    heads = [f"{upper} {lower}".replace("- ", "").strip() for upper, lower in sheet.heads]
    lines = [
        f"**{plain_text(sheet.title)}**",
        "",
        _row([first, *heads]),
        _row(["---", *["---:"] * len(heads)]),
    ]
    for label, cells in sheet.rows:
        pairs = zip(cells, sheet.decimals, strict=True)
        lines.append(_row([label, *(_cell(cell, decimals) for cell, decimals in pairs)]))
    return "\n".join([*lines, "", " ".join(sheet.caption), ""])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(plain_text(cell) for cell in cells)} |"


def plain_text(name: str) -> str:
    """A name as a cell of a table: neither HTML nor a new cell nor a new line begins in it."""
    for mark, shown in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "/")):
        name = name.replace(mark, shown)
    return " ".join(name.split())


def _cell(cell: Stat, decimals: int) -> str:
    text = format_number(cell.mean, decimals)
    return text if math.isnan(cell.std) else f"{text} ± {format_number(cell.std, decimals)}"
