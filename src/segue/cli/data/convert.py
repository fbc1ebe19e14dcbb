"""`segue data convert`: annotations of other tools to a folder to train on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.table import Table
from rich.text import Text

from segue.cli._tell import quote, tell, tell_next
from segue.cli.options import Quiet, flag, named_path

if TYPE_CHECKING:
    from segue.data.convert import Converted

PLACE = 2
MOST_LINES = 10
"""reasons shown for images that were left out"""


def command(
    source: Annotated[Path, typer.Argument(metavar="IN", help="A folder or JSON file of annotations.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", parser=named_path, help="The folder to write.")],
    to: Annotated[
        Literal["voc", "folder"],
        typer.Option("--to", metavar="FORMAT", help="voc: JPEG images, palette masks. folder: lossless."),
    ] = "voc",
    images: Annotated[
        Path | None, typer.Option("--images", metavar="FOLDER", help="Where the images are, if not in IN.")
    ] = None,
    test_share: Annotated[
        float,
        typer.Option("--test-share", metavar="SHARE", help="Share of test images, if IN names none."),
    ] = 0.2,
    skip_bad: Annotated[bool, flag("--skip-bad", help="Leave out images that cannot be used.")] = False,
    bits: Annotated[
        int,
        typer.Option(
            "--bits",
            metavar="N",
            min=8,
            max=16,
            help="Bits used by 16-bit images: 12 for values up to 4095.",
        ),
    ] = 16,
    quiet: Quiet = False,
) -> None:
    """Convert annotations of other tools to images, masks and class names.

    segue data convert export/ mine/ --to voc

    IN is COCO JSON, LabelMe, Label Studio JSON, Cityscapes polygons, or colour or index masks.
    CVAT exports some of these.
    """
    from rich.console import Console

    from segue.core.progress import Display
    from segue.data import convert
    from segue.data.annotations import read_source

    found = read_source(source, images)
    with Display(quiet=quiet).bar(f"converting {found.format}", len(found.drawings)) as bar:
        done = convert.convert(found, out, to, test_share, skip_bad, lambda count, _: bar.update(count), bits)
    Console().print(_table(done, found.format))
    lines = [*done.notes, *(f"left out: {reason}" for reason in done.skipped[:MOST_LINES])]
    if len(done.skipped) > MOST_LINES:
        lines.append(f"left out: {len(done.skipped) - MOST_LINES} more")
    for line in lines if not quiet else ():
        tell(line)
    tell_next(f"data check --on folder data.root={quote(done.out)}", silent=quiet)


def _table(done: Converted, kind: str) -> Table:
    table = Table(title=Text(kind))
    table.add_column("class")
    for split in done.images:
        table.add_column(split, justify="right")
    for name in done.classes:
        table.add_row(Text(name), *(f"{done.images_with[split][name]:,}" for split in done.images))
    table.add_section()
    table.add_row("all images", *(f"{count:,}" for count in done.images.values()))
    return table
