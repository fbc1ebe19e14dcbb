"""The tables as Markdown, for pages that are generated from records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from segue.core.records import RunRecord
from segue.report.comparison import compare
from segue.report.tables import Sheet, metrics_sheet, results_sheet


def markdown_tables(runs: Sequence[RunRecord], costs: bool = True) -> str:
    """Scores after each step and, with `costs`, the table of other scores and costs."""
    comparison = compare(runs)
    sheets = [results_sheet(comparison), *([metrics_sheet(comparison)] if costs else [])]
    return "\n".join(sheet_markdown(sheet) for sheet in sheets)


def sheet_markdown(sheet: Sheet, first: str = "method") -> str:
    """A sheet as a Markdown table."""
    heads = [f"{upper} {lower}".replace("- ", "").strip() for upper, lower in sheet.heads]
    title = f"**{plain_text(sheet.title)}**"
    lines = [title, "", table_row([first, *heads]), table_row(["---", *["---:"] * len(heads)])]
    for label, cells in sheet.rows:
        pairs = zip(cells, sheet.decimals, strict=True)
        lines.append(table_row([label, *(cell.text(decimals) for cell, decimals in pairs)]))
    return "\n".join([*lines, "", without_html(" ".join(sheet.caption)), ""])


def table_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(plain_text, cells))} |"


def plain_text(name: str) -> str:
    """A name as a cell of a table: neither HTML nor a link nor a new cell nor a new line begins in it."""
    for mark, shown in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "/"), ("](", "]&#40;")):
        name = name.replace(mark, shown)
    return " ".join(name.split())


def without_html(text: str) -> str:
    """Sentences of ours, in which names may stand: no HTML, link or picture from elsewhere begins in them."""
    return text.replace("<", "&lt;").replace("](", "]&#40;")


def generated_page(title: str, command: str, parts: Iterable[str]) -> str:
    """A generated page: which command makes it, then its paragraphs and tables."""
    made = f"Made from the records by `{command}`; do not edit."
    return "\n\n".join(part.strip() for part in (f"# {without_html(title)}", made, *parts)) + "\n"
