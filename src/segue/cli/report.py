"""`segue report`: tables and a page from run folders."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from segue.cli.options import (
    out_option,
    print_tables,
    tell,
)
from segue.core.errors import UserError


def command(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run folders to compare.")],
    out: Annotated[
        Path, out_option("File to write: .html, .md, .csv, .json; curves alone: .pdf, .svg, .png.")
    ] = Path("report.html"),
) -> None:
    """Compare runs: tables here, and one self-contained HTML page with curves and pictures."""
    from segue.core.records import read_run
    from segue.report import write_report

    runs = [read_run(folder) for folder in folders]
    if empty := [run.name for run in runs if not run.steps]:
        raise UserError(f"{empty[0]} has no finished step yet.")
    written = write_report(runs, out)
    print_tables(runs)
    tell(f"Report: {written}")
