"""`segue scenario import`: a manifest from index lists of other code bases."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from segue.cli.options import (
    ON,
    SPLIT,
    ModeOption,
    Words,
    named_path,
)

Out = Annotated[
    Path,
    typer.Argument(metavar="OUT", parser=named_path, help="The manifest to write, such as scenario.json."),
]


def command(
    folder: Annotated[
        Path, typer.Argument(metavar="LISTS", help="Folder with train-0.npy, train-1.npy, ...")
    ],
    out: Out,
    on: Annotated[str, ON],
    split: Annotated[str, SPLIT],
    words: Words = None,
    mode: ModeOption = None,
) -> None:
    """Make a manifest from the index lists of other code bases, and compare them with our rule.

    segue scenario import data/voc/15-5-ov voc-15-5.json --on voc --split 15-5 data.root=FOLDER

    Indices count the training images in order of name.
    """
    from segue.engine.manifests import import_scenario

    import_scenario(folder, out, on, split, mode, words or [])
