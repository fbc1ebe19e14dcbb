"""Commands on scenarios: write a manifest, or make one from index lists."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from segue.cli.options import ON, SPLIT, ModeOption, Words

app = typer.Typer(
    help="Manifests: which images train which step, as a file.", no_args_is_help=True, rich_markup_mode="rich"
)
Out = Annotated[Path, typer.Argument(metavar="OUT", help="The manifest to write, such as scenario.json.")]


@app.command()
def write(
    out: Out,
    on: Annotated[str, ON],
    split: Annotated[str, SPLIT],
    words: Words = None,
    mode: ModeOption = None,
) -> None:
    """Write the images of every step as a manifest, for 'segue train METHOD --manifest FILE'.

    segue scenario write ade-100-10.json --on ade20k --split 100-10 data.root=FOLDER
    """
    from segue.manifests import write_scenario

    write_scenario(out, on, split, mode, words or [])


@app.command("import")
def import_lists(
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
    from segue.manifests import import_scenario

    import_scenario(folder, out, on, split, mode, words or [])
