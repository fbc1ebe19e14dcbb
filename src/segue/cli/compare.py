"""`segue compare`: many methods in one setting or several."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from segue.cli._stories import STUDY
from segue.cli._tell import print_json, sheet_document, study_console, submitted, tell_report
from segue.cli.options import (
    MODES,
    ON,
    Cluster,
    Device,
    GpusPerRun,
    Json,
    Page,
    Quiet,
    RecipeWords,
    Seeds,
    Submit,
    out_option,
    recipe_and_words,
)

STORY, PLACE = STUDY, 1


def command(
    on: Annotated[str, ON],
    words: RecipeWords = None,
    split: Annotated[
        list[str] | None,
        typer.Option(
            "--split", metavar="SPLIT", help="15-5 or 'cat,dog/person'; repeated: a table for each."
        ),
    ] = None,
    mode: Annotated[
        list[str] | None,
        typer.Option("--mode", metavar="MODE", help=f"{', '.join(MODES)}; repeated: a table for each."),
    ] = None,
    methods: Annotated[
        str, typer.Option("--methods", metavar="NAMES", help="all, or names and .py files: mib,caf,mine.py.")
    ] = "all",
    seeds: Seeds = 1,
    out: Annotated[Path, out_option("Folder for the runs.")] = Path("runs/compare"),
    page: Page = None,
    device: Device = "auto",
    gpus_per_run: GpusPerRun = 1,
    cluster: Cluster = None,
    submit: Submit = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train many methods alike: one row each with scores, forgetting, time and memory.

    segue compare --on scenes --split 4-2 --methods all --seeds 3

    segue compare voc256.yaml --on voc --split 15-5 --split 15-1 data.root=FOLDER model.weights=FILE

    Runs that are done are not run again.
    A step 0 that several methods share is trained once.
    Settings (KEY=VALUE) hold for all methods; a recipe may have a section for each method.
    """
    from segue.report.methods import methods_sheet
    from segue.studies.compare import compare_methods
    from segue.studies.jobs import Workers

    names = [name.strip() for name in methods.split(",")]
    if submitted(submit):
        return
    recipe, said = recipe_and_words(words)
    workers = Workers(gpus_per_run, cluster)
    console = study_console(quiet, as_json)
    tables = compare_methods(
        names, on, split or [], mode or [], said, recipe, seeds, out, page, device, console, quiet, workers
    )
    if as_json:
        print_json([sheet_document(methods_sheet(table)) for table in tables])
    tell_report((run for table in tables for runs in table.runs.values() for run in runs), quiet or as_json)
