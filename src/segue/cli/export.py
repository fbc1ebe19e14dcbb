"""`segue export`: the model of a run as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from segue.cli.options import (
    RunFolder,
    named_path,
    tell,
)


def command(
    folder: RunFolder,
    out: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL", parser=named_path, help="The file to write, such as model.safetensors."
        ),
    ],
    step: Annotated[
        int | None, typer.Option("--step", help="After which step; the last finished one if not given.")
    ] = None,
) -> None:
    """Write the model of a run as one file, without what only training needs."""
    from segue.deploy.model_file import save_model
    from segue.engine.restore import restore_deployed

    model, classes = restore_deployed(folder, step)
    save_model(model, classes, out)
    count = sum(parameter.numel() for parameter in model.parameters())
    tell(f"{out}: {len(classes)} channels, {count:,} parameters")
