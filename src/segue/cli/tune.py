"""`segue tune`: one weight of each method, chosen on held-out training images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from segue.cli.options import (
    ON,
    Device,
    ModeOption,
    Page,
    RecipeWords,
    SplitOption,
    out_option,
    recipe_and_words,
)


def command(
    on: Annotated[str, ON],
    words: RecipeWords = None,
    split: SplitOption = None,
    mode: ModeOption = None,
    methods: Annotated[
        str, typer.Option("--methods", metavar="NAMES", help="all that the recipe tunes, or some: mib,caf.")
    ] = "all",
    out: Annotated[Path, out_option("Folder for runs and choice.")] = Path("runs/tune"),
    page: Page = None,
    device: Device = "auto",
) -> None:
    """Choose one weight of each method on held-out training images, with equally many trials for all.

    segue tune voc256.yaml --on voc --split 15-1 data.root=FOLDER model.weights=FILE

    The recipe's section 'tune' lists the values. Runs that are done are not run again. What is chosen is
    written to choice.yaml, as a recipe's section 'methods' has it. Test images play no part.
    """
    from segue.studies.tune import tune_methods

    names = [name.strip() for name in methods.split(",")]
    recipe, said = recipe_and_words(words)
    tune_methods(recipe, names, on, split, mode, said, out, page, device)
