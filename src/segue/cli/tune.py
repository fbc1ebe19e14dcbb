"""`segue tune`: one weight of each method, chosen on held-out training images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from segue.cli._stories import STUDY
from segue.cli._tell import (
    print_json,
    quote,
    sheet_document,
    study_console,
    submitted,
    tell_next,
)
from segue.cli.options import (
    ON,
    Cluster,
    Device,
    GpusPerRun,
    Json,
    ModeOption,
    Page,
    Quiet,
    RecipeWords,
    SplitOption,
    Submit,
    out_option,
    recipe_and_words,
)

STORY, PLACE = STUDY, 2


def command(
    on: Annotated[str, ON],
    words: RecipeWords = None,
    split: SplitOption = None,
    mode: ModeOption = None,
    methods: Annotated[
        str, typer.Option("--methods", metavar="NAMES", help="all that the recipe tunes, or some: mib,caf.")
    ] = "all",
    by: Annotated[
        str, typer.Option("--by", metavar="SCORE", help="Score that chooses: all, or hIoU.")
    ] = "all",
    used: Annotated[
        Path | None,
        typer.Option("--used", metavar="FILE", help="Choice of another split, to see what it loses here."),
    ] = None,
    out: Annotated[Path, out_option("Folder for the runs and the choice.")] = Path("runs/tune"),
    page: Page = None,
    device: Device = "auto",
    gpus_per_run: GpusPerRun = 1,
    cluster: Cluster = None,
    submit: Submit = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Choose one weight of each method on held-out training images, with equally many trials for all.

    segue tune voc256.yaml --on voc --split 15-1 data.root=FOLDER model.weights=FILE

    The section 'tune' of the recipe lists the values to try.
    The choice by all is written to choice.yaml, the one by hIoU to choice-hiou.yaml.
    Both have the form of a recipe's section 'methods'.
    Runs that are done are not run again.
    Test images are not used.
    """
    from segue.report.tuning import tuning_sheet
    from segue.studies.jobs import Workers
    from segue.studies.tune import tune_methods

    names = [name.strip() for name in methods.split(",")]
    if submitted(submit):
        return
    recipe, said = recipe_and_words(words)
    workers = Workers(gpus_per_run, cluster)
    console = study_console(quiet, as_json)
    table = tune_methods(
        recipe, names, on, split, mode, said, out, page, device, console, quiet, workers, by, used
    )
    if as_json:
        print_json({**sheet_document(tuning_sheet(table)), "choice": table.choice(by)})
    where = f" --split {quote(split)}" if split else ""
    why = "with the choice as its section 'methods'"
    tell_next(f"compare {quote(recipe)} --on {quote(on)}{where}", why, silent=quiet or as_json)
