"""A filled table of the paper for the terminal and as Markdown, LaTeX (booktabs) and CSV.

Each cell has the paper's number and then ours, mean and standard deviation over seeds. The best of our means
in a column is bold.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from segue.report.comparison import format_number
from segue.report.markdown import table_row
from segue.report.paper_table import Cell, FilledRow, FilledTable

COLUMN_WIDTH, NAME_WIDTH = 10, 14
"""characters of a column and of the rows' names in a terminal, about"""
Column = tuple[str, int, str]
"""block, position in the block, head"""
LATEX_SIGNS = {
    **{"\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_"},
    **{"{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
}


def paper_terminal(table: FilledTable, width: int) -> RenderableType:
    """As many blocks side by side as the width allows, then the status of every row."""
    parts: list[RenderableType] = []
    best = table.best()
    for columns in _side_by_side(table, width):
        parts.append(_terminal_columns(table, columns, best, title=not parts))
    states = Table("row", "status", box=None, pad_edge=False)
    for row in table.rows:
        states.add_row(Text(row.name), Text(table.status(row).text))
    notes = Text("\n".join(caption(table)), style="dim")
    return Group(*parts, states, notes)


def _side_by_side(table: FilledTable, width: int) -> Iterator[list[Column]]:
    """Columns that fit the width; a block is broken only if it is wider than that by itself."""
    room = width - NAME_WIDTH
    group, used = list[Column](), 0
    for name, block in table.item.blocks.items():
        columns = [(name, position, head) for position, head in enumerate(block.columns)]
        sizes = [max(len(head) + 1, COLUMN_WIDTH) for head in block.columns]
        if group and used + sum(sizes) > room:
            yield group
            group, used = [], 0
        for column, size in zip(columns, sizes, strict=True):
            if group and used + size > room:
                yield group
                group, used = [], 0
            group.append(column)
            used += size
    yield group


def _terminal_columns(
    table: FilledTable, columns: Sequence[Column], best: set[tuple[str, str, int]], title: bool
) -> Table:
    shown = Table(
        title=Text(table.title, style="bold") if title else None,
        box=box.SIMPLE_HEAD,
        padding=(0, 1),
        collapse_padding=True,
        pad_edge=False,
        show_edge=False,
    )
    shown.add_column(Text("\n\nrow"), overflow="fold", min_width=6)
    before = ""
    for block, _, head in columns:
        upper = block.replace(" ", "\n") if block != before else "\n"
        shown.add_column(Text(f"{upper}\n{head}"), justify="right", no_wrap=True)
        before = block
    for row in table.rows:
        if row.row.section:
            shown.add_row(Text(row.row.section, style="italic"))
        cells = [
            _terminal_cell(row.cells[block][position], (row.name, block, position) in best)
            for block, position, _ in columns
        ]
        shown.add_row(Text(row.name), *cells)
    return shown


def _terminal_cell(cell: Cell, bold: bool) -> Text:
    text = Text(format_number(cell.paper, 1) + "\n", style="dim")
    return text.append(cell.ours.text(1, "±"), style="bold not dim" if bold else "not dim")


def paper_markdown(table: FilledTable) -> str:
    """One wide table, as in the paper."""
    best = table.best()
    heads = [f"{block} {head}" for block, _, head in table.columns()]
    lines = [f"**{table.title}**", "", table_row(["row", *heads, "status"])]
    lines.append(table_row(["---", *["---:"] * len(heads), "---"]))
    for row in table.rows:
        if row.row.section:
            lines.append(table_row([f"*{row.row.section}*", *[""] * (len(heads) + 1)]))
        cells = []
        for block, position, _ in table.columns():
            ours = row.cells[block][position].ours.text(1)
            ours = f"**{ours}**" if (row.name, block, position) in best else ours
            cells.append(f"{format_number(row.cells[block][position].paper, 1)} / {ours}")
        lines.append(table_row([row.name, *cells, table.status(row).text]))
    return "\n".join([*lines, "", *caption(table), ""])


def paper_latex(table: FilledTable) -> str:
    r"""A table environment; its document needs \usepackage{booktabs,graphicx}."""
    best, columns = table.best(), list(table.columns())
    blocks = [(name, len(block.columns)) for name, block in table.item.blocks.items()]
    heads = " & ".join(rf"\multicolumn{{{count}}}{{c}}{{{latex(name)}}}" for name, count in blocks)
    rules, start = [], 2
    for _, count in blocks:
        rules.append(rf"\cmidrule(lr){{{start}-{start + count - 1}}}")
        start += count
    lines = [
        r"% \usepackage{booktabs,graphicx}",
        r"\begin{table*}[t]",
        r"\centering",
        rf"\caption{{{latex(table.title)}. {latex(' '.join(caption(table)))}}}",
        r"\resizebox{\textwidth}{!}{%",
        rf"\begin{{tabular}}{{l{'c' * len(columns)}l}}",
        r"\toprule",
        rf" & {heads} & \\",
        " ".join(rules),
        " & ".join(["Method", *(latex(head) for _, _, head in columns), r"Status \\"]),
        r"\midrule",
    ]
    for row in table.rows:
        if row.row.section:
            lines.append(rf"\multicolumn{{{len(columns) + 2}}}{{c}}{{{latex(row.row.section)}}} \\")
        cells = [_latex_cell(row, block, position, best) for block, position, _ in columns]
        lines.append(" & ".join([latex(row.name), *cells, latex(table.status(row).text)]) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}}", r"\end{table*}"]
    return "\n".join(lines) + "\n"


def _latex_cell(row: FilledRow, block: str, position: int, best: set[tuple[str, str, int]]) -> str:
    cell = row.cells[block][position]
    ours = format_number(cell.ours.mean, 1)
    if (row.name, block, position) in best:
        ours = rf"\textbf{{{ours}}}"
    if not math.isnan(cell.ours.std):
        ours += rf"{{\scriptsize$\pm${format_number(cell.ours.std, 1)}}}"
    return f"{format_number(cell.paper, 1)} / {ours}"


def latex(text: str) -> str:
    """Text with the signs that LaTeX would take for commands written out."""
    plain = "".join(LATEX_SIGNS.get(sign, sign) for sign in text)
    return plain.replace("±", r"$\pm$").replace("->", r"$\rightarrow$")


def paper_csv(table: FilledTable) -> str:
    """A line for each row: of each column the paper's number, our mean, its deviation and the seeds."""
    heads = [f"{block} {head}" for block, _, head in table.columns()]
    names = [f"{head} {what}" for head in heads for what in ("paper", "ours", "std", "seeds")]
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["row", "status", *names])
    for row in table.rows:
        numbers = []
        for block, position, _ in table.columns():
            cell = row.cells[block][position]
            values = (cell.paper, cell.ours.mean, cell.ours.std)
            numbers += ["" if math.isnan(value) else f"{value:.2f}" for value in values] + [str(cell.seeds)]
        writer.writerow([row.name, table.status(row).text, *numbers])
    return file.getvalue()


def caption(table: FilledTable) -> list[str]:
    """What the numbers are."""
    lines = [
        f"Paper / ours, mean IoU in percent after the last step, without background. Scale {table.scale}:"
        f" {table.about}.",
        "± is the standard deviation over seeds; bold: the best of our means; -: not run, or not printed.",
    ]
    against = (
        "the paper's numbers, or the values once reached here where some are stored"
        if table.scale == "paper"
        else "the values that were once reached here at this scale, not against the paper's"
    )
    return [*lines, f"Status: ours against {against}.", table.sources.text, *table.notes]
