"""`segue ablate`: the ablation tables of the paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from segue.cli.options import (
    ON,
    Device,
    ModeOption,
    Page,
    Seeds,
    SplitOption,
    out_option,
    recipe_and_words,
)


def command(
    tables: Annotated[
        list[str],
        typer.Argument(
            metavar="TABLE... [RECIPE] [KEY=VALUE]",
            help="table3, table5, table6, table7, figure6-kd, figure6-ad, variants, layers; all. Then a"
            " recipe (my.yaml) and settings for all rows.",
        ),
    ],
    on: Annotated[str, ON],
    split: SplitOption = None,
    mode: ModeOption = None,
    seeds: Seeds = 1,
    out: Annotated[Path, out_option("Folder for the runs.")] = Path("runs/ablations"),
    page: Page = None,
    device: Device = "auto",
) -> None:
    """Run the rows of the paper's ablation tables, the paper's numbers beside ours.

    segue ablate table3 --on scenes --seeds 3

    segue ablate table3 my.yaml --on voc data.root=FOLDER

    Rows that are done are not run again. A recipe and KEY=VALUE settings may follow the tables.

    Without --split and --mode: the paper's on voc, 5-2 overlapped on scenes.
    """
    from segue.studies.ablate import ablate

    recipe, said = recipe_and_words(tables)
    words = [word for word in said if "=" in word]
    names = [word for word in said if "=" not in word]
    ablate(names, on, split, mode, words, seeds, out, page, device, recipe=recipe)
