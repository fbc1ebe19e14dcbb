"""`segue scenario import`: a manifest from index lists of other code bases."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from segue.cli._tell import quote, tell_next
from segue.cli.options import ON, SPLIT, ManifestOut, ModeOption, Words

PLACE = 2


def command(
    folder: Annotated[
        Path, typer.Argument(metavar="LISTS", help="Folder with train-0.npy, train-1.npy, ...")
    ],
    out: ManifestOut,
    on: Annotated[str, ON],
    split: Annotated[str, SPLIT],
    words: Words = None,
    mode: ModeOption = None,
) -> None:
    """Make a manifest from the index lists of other code bases (MiB, PLOP).

    segue scenario import data/voc/15-5-ov voc-15-5.json --on voc --split 15-5 data.root=FOLDER

    Indices count the training images in order of name.
    A table says how the lists differ from the rule of the mode.
    """
    from segue.engine.manifests import import_scenario

    import_scenario(folder, out, on, split, mode, words or [])
    tell_next(f"train {shlex.join(['caf', *(words or [])])} --manifest {quote(out)}")
