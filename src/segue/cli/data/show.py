"""`segue data show`: a contact sheet of a step."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from segue.cli.options import (
    ON,
    Manifest,
    ModeOption,
    SplitOption,
    Words,
    out_option,
    with_manifest,
)


def command(
    on: Annotated[str, ON],
    words: Words = None,
    split: SplitOption = None,
    mode: ModeOption = None,
    manifest: Manifest = None,
    step: Annotated[int, typer.Option("--step", min=0, help="The step to look at.")] = 0,
    part: Annotated[
        Literal["train", "test"], typer.Option("--part", help="Training or test images.")
    ] = "train",
    images: Annotated[int, typer.Option("--images", min=1, help="How many images.")] = 12,
    out: Annotated[Path, out_option("The page to write.")] = Path("sheet.html"),
) -> None:
    """Write a contact sheet of a step: images, masks as drawn, labels as the model sees them.

    segue data show --on voc --split 15-5 --step 1 data.root=FOLDER
    """
    from segue.plan.checkup import data_recipe, show_data

    show_data(data_recipe(on, split, mode, with_manifest(words, manifest)), step, part, images, out)
