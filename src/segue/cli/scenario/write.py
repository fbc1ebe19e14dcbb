"""`segue scenario write`: the images of every step as a manifest."""

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
    out: Out,
    on: Annotated[str, ON],
    split: Annotated[str, SPLIT],
    words: Words = None,
    mode: ModeOption = None,
) -> None:
    """Write the images of every step as a manifest, for 'segue train METHOD --manifest FILE'.

    segue scenario write ade-100-10.json --on ade20k --split 100-10 data.root=FOLDER
    """
    from segue.engine.manifests import write_scenario

    write_scenario(out, on, split, mode, words or [])
