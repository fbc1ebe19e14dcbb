"""`segue help`: the same as --help."""

from __future__ import annotations

from typing import Annotated

import typer

from segue.cli._stories import TRY

STORY, PLACE = TRY, 3


def command(
    verb: Annotated[
        list[str] | None, typer.Argument(metavar="VERB", help="A verb: train, or data check.")
    ] = None,
) -> None:
    """Explain a verb, or list all of them.

    segue help train
    """
    from segue.cli import app

    app([*(verb or []), "--help"], prog_name="segue")
