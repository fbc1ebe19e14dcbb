"""`segue data show`: a contact sheet of a step."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from segue.cli._tell import tell, tell_next, train_command
from segue.cli.data._recipe import data_recipe
from segue.cli.options import (
    Manifest,
    ModeOption,
    On,
    Quiet,
    SourceWords,
    SplitOption,
    out_option,
    source_and_words,
    with_manifest,
)

PLACE = 4


def command(
    words: SourceWords = None,
    on: On = None,
    split: SplitOption = None,
    mode: ModeOption = None,
    manifest: Manifest = None,
    step: Annotated[int, typer.Option("--step", metavar="N", min=0, help="The step to look at.")] = 0,
    part: Annotated[
        str, typer.Option("--part", metavar="PART", help="train, test, or the name of a list: val.")
    ] = "train",
    images: Annotated[int, typer.Option("--images", metavar="N", min=1, help="How many images.")] = 12,
    out: Annotated[Path, out_option("The page to write.", "FILE")] = Path("sheet.html"),
    quiet: Quiet = False,
) -> None:
    """Write a contact sheet of a step: images, masks as drawn, labels as the model sees them.

    segue data show --on voc --split 15-5 --step 1 data.root=FOLDER

    segue data show my.yaml --part test

    The images are spread over all of the step's, class by class.
    """
    from segue.core.progress import Display

    source, said = source_and_words(words)
    config = data_recipe(on, split, mode, with_manifest(said, manifest), source)

    from segue.plan.contact_sheet import show_data  # torch: not before the recipe is known to be sound

    page = show_data(config, step, part, images, out, Display(quiet=quiet))
    tell(f"Page: {page}")
    tell_next(train_command(config, source, said), silent=quiet)
