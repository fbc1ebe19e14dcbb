"""`segue reproduce`: the tables and figures of the paper."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from segue.cli._stories import STUDY
from segue.cli._tell import print_json, study_console, submitted, tell, tell_next
from segue.cli.options import Cluster, Device, GpusPerRun, Json, Page, Quiet, Submit, flag, out_option

STORY, PLACE = STUDY, 4


def _item_names(incomplete: str) -> list[str]:
    from segue.studies.scale import item_names

    return [name for name in [*item_names(), "all"] if name.startswith(incomplete)]


def command(
    items: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ITEM|KEY=VALUE",
            help="table1 ... table7, figure1, figure4 ... figure11, or all; then data (voc=FOLDER) and"
            " settings. None: list them.",
            autocompletion=_item_names,
        ),
    ] = None,
    scale: Annotated[
        str,
        typer.Option(
            "--scale", metavar="SCALE", help="paper (GPUs), voc256, voc256-2 (CPU) or quick (minutes)."
        ),
    ] = "quick",
    from_records: Annotated[
        bool, flag("--from-records", help="Train nothing: use the runs there are.")
    ] = False,
    verify: Annotated[
        bool, flag("--verify", help="Exit with 1 if a row that was once reproduced is not any more.")
    ] = False,
    accept: Annotated[
        bool, flag("--accept", help="Store today's numbers as those that --verify expects (in a checkout).")
    ] = False,
    fresh: Annotated[
        bool, flag("--fresh", help="Leave the checkout's stored results out: train those runs again.")
    ] = False,
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds", metavar="N", min=1, help="Runs per row, with seeds 0, 1, ...; else the scale's."
        ),
    ] = None,
    out: Annotated[Path, out_option("Folder for runs, tables and figures.")] = Path("runs/reproduce"),
    page: Page = None,
    device: Device = "auto",
    gpus_per_run: GpusPerRun = 1,
    cluster: Cluster = None,
    submit: Submit = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Make a table or figure of the CAF paper again: its numbers beside ours.

    segue reproduce

    segue reproduce table1 --scale quick

    segue reproduce table1 --scale paper voc=FOLDER

    Runs that are done are taken from their records, missing ones are carried out.
    """
    from segue.studies.jobs import Workers
    from segue.studies.reproduce import check_verifiable, list_items, make_request, reproduce
    from segue.studies.scale import accept as store_expected

    names = [word for word in items or [] if "=" not in word]
    words = [word for word in items or [] if "=" in word]
    request = make_request(names or ["all"], scale, words, seeds, out, fresh)
    said = ["--scale", scale, *(["--seeds", str(seeds)] if seeds else []), *(["--fresh"] if fresh else [])]
    said += ["--out", str(out), *words]
    if not names:
        _list(list_items(request), scale, said, as_json)
        return
    if verify:
        check_verifiable(request)
    if submitted(submit):
        return
    console, workers = study_console(quiet, as_json), Workers(gpus_per_run, cluster)
    tables = reproduce(request, from_records, page, device, console, quiet, workers)
    if as_json:
        print_json([table.document() for table in tables])
    if verify:
        _verify(tables)
    if accept:
        path = store_expected(scale, {table.name: rows for table in tables if (rows := table.reached())})
        tell(f"Stored as what is expected from now on: {path}")
    missing = shlex.join(["reproduce", *said])
    tell_next(missing, "what is missing, and what it costs", silent=quiet or as_json)


def _list(rows: list[dict[str, Any]], scale: str, said: list[str], as_json: bool) -> None:
    if as_json:
        print_json(rows)
        return
    table = Table(box=None, pad_edge=False)
    for head in ("item", f"what, at scale {scale}", "done", "missing costs", "needs"):
        table.add_column(head, justify="right" if head in ("done", "missing costs") else "left")
    for row in rows:
        done = f"{row['done']} of {row['runs']}"
        table.add_row(row["item"], row["title"], done, row["cost"], row["needs"])
    Console().print(table)
    tell_next(shlex.join(["reproduce", "table1", *said]), "carries out what is missing")


def _verify(tables: list[Any]) -> None:
    broken = [f"{table.name}, {line}" for table in tables for line in table.broken()]
    for line in broken:
        tell(line)
    if broken:
        raise typer.Exit(1)
    checked = [table for table in tables if table.expected]
    rows = sum(len(table.expected) for table in checked)
    tell(f"Verified: {rows} rows of {', '.join(table.name for table in checked)} are as they once were.")
    if not any(table.sources.here for table in checked):
        tell(
            "All their runs are stored results, from which the expected values come: this checks reading and"
            " scoring. To check training, too, add --fresh."
        )
