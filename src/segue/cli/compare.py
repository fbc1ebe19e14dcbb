"""`segue compare`: many methods in one setting or several."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from segue.cli.options import (
    ON,
    Device,
    Page,
    RecipeWords,
    Seeds,
    out_option,
    recipe_and_words,
)


def command(
    on: Annotated[str, ON],
    words: RecipeWords = None,
    split: Annotated[
        list[str] | None,
        typer.Option("--split", help="15-5 or 'cat,dog/person'; several times: a table for each."),
    ] = None,
    mode: Annotated[
        list[str] | None,
        typer.Option("--mode", help="overlapped, disjoint, sequential or divided; several times too."),
    ] = None,
    methods: Annotated[
        str, typer.Option("--methods", metavar="NAMES", help="all, or names and .py files: mib,caf,mine.py.")
    ] = "all",
    seeds: Seeds = 1,
    out: Annotated[Path, out_option("Folder for the runs.")] = Path("runs/compare"),
    page: Page = None,
    device: Device = "auto",
) -> None:
    """Run many methods in one setting or several: a line each, with scores, forgetting, time and memory.

    segue compare --on scenes --split 4-2 --methods all --seeds 3

    segue compare voc256.yaml --on voc --split 15-5 --split 15-1 data.root=FOLDER model.weights=FILE

    Runs that are done are not run again, and a step 0 that several methods share is trained once. KEY=VALUE
    settings apply to all methods; a recipe (.yaml) may have a section of its own for each.
    """
    from segue.studies.compare import compare_methods

    names = [name.strip() for name in methods.split(",")]
    recipe, said = recipe_and_words(words)
    compare_methods(names, on, split or [], mode or [], said, recipe, seeds, out, page, device)
