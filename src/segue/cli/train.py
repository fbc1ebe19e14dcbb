"""`segue train`: train and test every step of a scenario."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from segue.cli.options import (
    Device,
    Manifest,
    ModeOption,
    On,
    Seed,
    SplitOption,
    Target,
    Words,
    out_option,
    print_tables,
    resolve_target,
    tell,
    with_manifest,
)


def command(
    target: Target,
    words: Words = None,
    on: On = None,
    split: SplitOption = None,
    mode: ModeOption = None,
    manifest: Manifest = None,
    seed: Seed = None,
    out: Annotated[
        Path | None,
        out_option("Run folder; runs/METHOD-DATASET-SPLIT-MODE-SEED if not given."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on where a run with this recipe stopped.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Delete an earlier run in that folder.")
    ] = False,
    start: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="RUN", help="A run whose step 0 is the same: it is not trained again."
        ),
    ] = None,
    device: Device = "auto",
) -> None:
    """Train and test every step of a scenario.

    segue train caf --on voc --split 15-5 --mode overlapped data.root=FOLDER
    """
    config, folder = resolve_target(target, on, split, mode, seed, with_manifest(words, manifest))

    from segue.core.progress import Display
    from segue.engine.folder import default_folder
    from segue.engine.run import run  # torch: not before the recipe is known to be sound

    folder = out or folder or default_folder(config)
    record = run(config, folder, resume, overwrite, device, Display(), start)
    if record is not None:
        print_tables([record])
        tell(f"Records: {folder}/steps. Page: segue report {folder}")
