"""`segue ablate`: the ablation tables of the paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from segue.cli._stories import STUDY
from segue.cli._tell import print_json, sheet_document, study_console, submitted, tell_report
from segue.cli.options import (
    ON,
    Cluster,
    Device,
    GpusPerRun,
    Json,
    ModeOption,
    Page,
    Quiet,
    Seeds,
    SplitOption,
    Submit,
    out_option,
    recipe_and_words,
)

STORY, PLACE = STUDY, 3


def command(
    tables: Annotated[
        list[str],
        typer.Argument(
            metavar="TABLE|RECIPE|KEY=VALUE",
            help="table3, table5, table6, table7, figure6-kd, figure6-ad, variants, layers; or all."
            " A recipe (my.yaml) and settings for all rows may follow.",
        ),
    ],
    on: Annotated[str, ON],
    split: SplitOption = None,
    mode: ModeOption = None,
    seeds: Seeds = 1,
    out: Annotated[Path, out_option("Folder for the runs.")] = Path("runs/ablations"),
    page: Page = None,
    device: Device = "auto",
    gpus_per_run: GpusPerRun = 1,
    cluster: Cluster = None,
    submit: Submit = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run the ablation tables of the CAF paper, its numbers beside ours.

    segue ablate table3 --on scenes --seeds 3

    segue ablate table3 my.yaml --on voc data.root=FOLDER

    Rows that are done are not run again.
    Without --split and --mode: those of the paper on voc, 5-2 overlapped on scenes.
    """
    from segue.report.ablation import ablation_sheet
    from segue.studies.ablate import ablate
    from segue.studies.jobs import Workers

    if submitted(submit):
        return
    recipe, said = recipe_and_words(tables)
    words = [word for word in said if "=" in word]
    names = [word for word in said if "=" not in word]
    workers = Workers(gpus_per_run, cluster)
    console = study_console(quiet, as_json)
    done = ablate(names, on, split, mode, words, seeds, out, page, device, console, recipe, quiet, workers)
    if as_json:
        print_json([sheet_document(ablation_sheet(each)) for each in done])
    tell_report((run for each in done for runs in each.runs for run in runs), quiet or as_json)
