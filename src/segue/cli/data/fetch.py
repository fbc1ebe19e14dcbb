"""`segue data fetch`: a data set from the web, or from archives got by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from segue.cli.options import out_option


def command(
    name: Annotated[
        Literal["voc", "ade20k", "cityscapes"],
        typer.Argument(metavar="NAME", help="voc, ade20k or cityscapes."),
    ],
    out: Annotated[Path, out_option("Folder for the data.")] = Path("data"),
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
