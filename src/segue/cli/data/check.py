"""`segue data check`: whether training can start."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from segue.cli.options import (
    ON,
    Device,
    Manifest,
    ModeOption,
    SplitOption,
    Words,
    with_manifest,
)


def command(
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
    from segue.plan.checkup import check_data, data_recipe

    if not check_data(data_recipe(on, split, mode, with_manifest(words, manifest)), skip_bad, page, device):
        raise typer.Exit(1)
