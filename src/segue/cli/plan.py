"""`segue plan`: what a run will need."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from segue.cli.options import (
    Manifest,
    ModeOption,
    On,
    SplitOption,
    Target,
    Words,
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
    gpu: Annotated[
        str | None,
        typer.Option("--gpu", metavar="NAME", help="Such as t4, v100, rtx3090, a100; else several."),
    ] = None,
    processes: Annotated[int, typer.Option("--processes", min=1, help="GPUs that share every batch.")] = 1,
    images: Annotated[
        int | None, typer.Option("--images", min=2, help="Training images, where the data is not at hand.")
    ] = None,
    utilisation: Annotated[
        float, typer.Option("--utilisation", min=0.01, max=1, help="Share of the GPU's peak that is reached.")
    ] = 0.3,
) -> None:
    """Say what a run will need: parameters, FLOPs, memory, disk, and hours on a GPU.

    segue plan caf --on ade20k --split 100-10 --gpu a100

    Needs neither the data nor a GPU.
    """
    from segue.core.progress import Display
    from segue.plan.gpus import GPUS, find_gpu
    from segue.plan.plan import make_plan
    from segue.plan.tables import plan_notes, plan_tables

    gpus = [find_gpu(gpu)] if gpu is not None else list(GPUS.values())
    config, _ = resolve_target(target, on, split, mode, None, with_manifest(words, manifest))
    made = make_plan(config, processes, images, Display())
    console = Console()
    for table in plan_tables(made, gpus, utilisation):
        console.print(table)
    for note in plan_notes(made, gpus, utilisation):
        tell(note)
