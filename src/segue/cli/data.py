"""Commands on data: check, show, convert, fetch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from segue.cli.options import ON, Device, Manifest, ModeOption, SplitOption, Words, with_manifest

app = typer.Typer(
    help="Look at data before training: check, show, convert, fetch.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)


@app.command()
def check(
    on: Annotated[str, ON],
    words: Words = None,
    split: SplitOption = None,
    mode: ModeOption = None,
    manifest: Manifest = None,
    skip_bad: Annotated[
        Path | None,
        typer.Option("--skip-bad", metavar="FILE", help="Write a list of bad files, for data.skip=FILE."),
    ] = None,
    page: Annotated[
        Path | None, typer.Option("--page", metavar="FILE", help="Also write an HTML page with plots.")
    ] = None,
    device: Device = "auto",
) -> None:
    """Read every file once and say whether training can start.

    segue data check --on voc --split 15-5 data.root=FOLDER

    Exit code 0: ready; 1: not ready; 2: the command itself is wrong.
    """
    from segue.checkup import check_data, data_recipe

    if not check_data(data_recipe(on, split, mode, with_manifest(words, manifest)), skip_bad, page, device):
        raise typer.Exit(1)


@app.command()
def show(
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
    out: Annotated[Path, typer.Option("--out", help="The page to write.")] = Path("sheet.html"),
) -> None:
    """Write a contact sheet of a step: images, masks as drawn, labels as the model sees them.

    segue data show --on voc --split 15-5 --step 1 data.root=FOLDER
    """
    from segue.checkup import data_recipe, show_data

    show_data(data_recipe(on, split, mode, with_manifest(words, manifest)), step, part, images, out)


@app.command()
def convert(
    source: Annotated[Path, typer.Argument(metavar="IN", help="A folder or JSON file of annotations.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to write.")],
    to: Annotated[
        Literal["voc", "folder"],
        typer.Option("--to", help="voc: JPEG images, palette masks. folder: lossless images, masks."),
    ] = "voc",
    images: Annotated[
        Path | None, typer.Option("--images", metavar="FOLDER", help="Where the images are, if not in IN.")
    ] = None,
    test_share: Annotated[
        float, typer.Option("--test-share", help="Images for testing, if IN does not say which.")
    ] = 0.2,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out what cannot be used.")] = False,
    bits: Annotated[
        int,
        typer.Option(
            "--bits",
            min=8,
            max=16,
            help="Bits that carry the picture in 16-bit images: 12 for values up to 4095.",
        ),
    ] = 16,
) -> None:
    """Convert annotations to images, masks and class names that can be trained on.

    segue data convert export/ mine/ --to voc

    Reads COCO JSON, LabelMe, Cityscapes polygons, colour or index masks.
    CVAT and Label Studio can export these.
    """
    from segue.conversion import convert_annotations

    convert_annotations(source, out, to, images, test_share, skip_bad, bits)


@app.command()
def fetch(
    name: Annotated[
        Literal["voc", "ade20k", "cityscapes"],
        typer.Argument(metavar="NAME", help="voc, ade20k or cityscapes."),
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder for the data.")] = Path("data"),
    archive: Annotated[
        list[Path] | None,
        typer.Option("--archive", metavar="FILE", help="A file got by hand; may be said more than once."),
    ] = None,
    mirror: Annotated[
        str | None,
        typer.Option("--mirror", metavar="URL", help="Another place on the web that has the files."),
    ] = None,
) -> None:
    """Download a data set, check it and unpack it; or say what to get by hand.

    segue data fetch voc --out data

    A command that was stopped can be repeated: what is complete is not fetched again.
    """
    from segue.data.fetch.fetch import fetch_data

    fetch_data(name, out, archive or [], mirror)
