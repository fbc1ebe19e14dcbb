"""`segue data fetch`: a data set from the web, or from archives got by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from segue.cli._tell import quote, tell_next
from segue.cli.options import out_option

PLACE = 1


def command(
    name: Annotated[
        Literal["voc", "ade20k", "cityscapes"],
        typer.Argument(metavar="NAME", help="voc, ade20k or cityscapes."),
    ],
    out: Annotated[Path, out_option("Folder for the data.")] = Path("data"),
    archive: Annotated[
        list[Path] | None,
        typer.Option("--archive", metavar="FILE", help="An archive that you downloaded; may be repeated."),
    ] = None,
    mirror: Annotated[
        str | None,
        typer.Option("--mirror", metavar="URL", help="Another web address that has the files."),
    ] = None,
) -> None:
    """Download a data set, verify it and unpack it.

    segue data fetch voc --out data

    Cityscapes asks for a login: the command says which files to download by hand.
    A command that was stopped can be repeated: complete files are not fetched again.
    """
    from segue.data.fetch.fetch import fetch_data

    root = fetch_data(name, out, archive or [], mirror)
    tell_next(f"data check --on {name} data.root={quote(root)}")
