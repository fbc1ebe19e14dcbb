"""`segue export`: the model of a run as a folder or a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from segue.cli._stories import USE
from segue.cli._tell import quote, tell, tell_next
from segue.cli.options import RunFolder, StepOption, named_path

STORY, PLACE = USE, 7


def command(
    folder: RunFolder,
    out: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL",
            parser=named_path,
            help="The model folder to write, or a file such as model.safetensors.",
        ),
    ],
    step: StepOption = None,
) -> None:
    """Write the model of a run as a model folder, or as one file.

    segue export runs/caf-voc-15-5-overlapped-s42 model

    A folder also holds what the method keeps between steps: it can be extended as well as the run can.
    """
    from segue.deploy.load import load_run
    from segue.deploy.model import check_export

    check_export(out)
    model = load_run(folder, step, device="cpu")
    model.export(out)
    count = sum(parameter.numel() for parameter in model.network.parameters())
    tell(f"{out}: {len(model.classes)} channels, {count:,} parameters")
    tell_next(f"predict {quote(out)} photos/ --out predicted", "masks of new images")
