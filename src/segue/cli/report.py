"""`segue report`: tables and a page from run folders."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from segue.cli._stories import USE
from segue.cli._tell import print_tables, quote, tell, tell_next
from segue.cli.options import Json, Quiet, flag, out_option
from segue.core.errors import UserError

STORY, PLACE = USE, 6


def command(
    folders: Annotated[
        list[Path], typer.Argument(metavar="RUN", help="Run folders, or packed studies (study.jsonl).")
    ],
    out: Annotated[
        Path, out_option("File to write: .html, .md, .csv, .json; curves alone: .pdf, .svg, .png.", "FILE")
    ] = Path("report.html"),
    summary: Annotated[
        bool,
        flag(
            "--summary",
            help="All settings together: .csv with a line per method and setting, .svg with mean ranks.",
        ),
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Show one run or compare several: tables, and a page with curves and pictures.

    segue report runs/caf-voc-15-5-overlapped-s42 --out caf.html

    segue report runs/compare/scenes-5-2-overlapped/*

    segue report results/compare/*/* --out results/compare/study.jsonl

    segue report results/compare/study.jsonl --out results/compare.csv --summary

    segue report results/compare/study.jsonl --out ranks.svg --summary

    The page is one self-contained file.
    study.jsonl packs the records of many runs into one file, which is read as if the folders were there.
    With --json no page is written.
    """
    from segue.report import write_report
    from segue.report.files import json_document
    from segue.report.study import read_runs

    runs = read_runs(folders)
    if empty := [run.name for run in runs if not run.steps]:
        raise UserError(f"{empty[0]} has no finished step yet.")
    if as_json:
        print(json_document(runs), end="")
        return
    written = write_report(runs, out, summary)
    if not summary and out.suffix != ".jsonl":  # these may hold many settings
        print_tables(runs)
    tell(f"Report: {written}")
    if folders[0].is_dir():
        tell_next(f"export {quote(folders[0])} model", "a folder to predict with and to extend", silent=quiet)
    else:
        why = "a line per method and setting"
        tell_next(f"report {quote(folders[0])} --out summary.csv --summary", why, silent=quiet)
