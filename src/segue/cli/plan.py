"""`segue plan`: what a run will need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from segue.cli._stories import USE
from segue.cli._tell import as_typed, print_json, tell, tell_next, with_needed
from segue.cli.options import (
    Json,
    Manifest,
    ModeOption,
    On,
    Quiet,
    SplitOption,
    Target,
    Words,
    resolve_target,
    with_manifest,
)
from segue.plan.gpus import UTILISATION

if TYPE_CHECKING:
    from segue.plan.gpus import Gpu
    from segue.plan.needs import Plan

STORY, PLACE = USE, 3


def command(
    target: Target,
    words: Words = None,
    on: On = None,
    split: SplitOption = None,
    mode: ModeOption = None,
    manifest: Manifest = None,
    gpu: Annotated[
        str | None,
        typer.Option("--gpu", metavar="NAME", help="One GPU: t4, v100, rtx3090, a100, ...; else several."),
    ] = None,
    processes: Annotated[
        int, typer.Option("--processes", metavar="N", min=1, help="Ranks that share the global batch.")
    ] = 1,
    images: Annotated[
        int | None,
        typer.Option("--images", metavar="N", min=2, help="Training images, if the data is not here."),
    ] = None,
    utilisation: Annotated[
        float,
        typer.Option("--utilisation", metavar="SHARE", min=0.01, max=1, help="Share of the GPU's peak."),
    ] = UTILISATION,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Estimate what a run needs: parameters, FLOPs, memory, disk, hours on a GPU.

    segue plan caf --on ade20k --split 100-10 --gpu a100

    Needs neither the data nor a GPU.
    """
    from segue.core.progress import Display
    from segue.plan.gpus import GPUS, find_gpu

    gpus = [find_gpu(gpu)] if gpu is not None else list(GPUS.values())
    said = with_manifest(words, manifest)
    notes: list[str] = []
    config, _ = resolve_target(target, on, split, mode, None, said, "cuda", notes.append)

    from segue.plan.plan import make_plan  # torch: not before the recipe is known to be sound
    from segue.plan.tables import plan_notes, plan_tables

    made = make_plan(config, processes, images, Display(quiet=quiet))
    if as_json:
        print_json(_document(made, gpus, utilisation))
        return
    console = Console()
    for table in plan_tables(made, gpus, utilisation):
        console.print(table)
    for note in (*plan_notes(made, gpus, utilisation), *notes):
        if not quiet:
            tell(note)
    tell_next(f"train {as_typed(target, on, split, mode, with_needed(config, said))}", silent=quiet)


def _document(made: Plan, gpus: Sequence[Gpu], utilisation: float) -> dict[str, Any]:
    """Sizes in bytes."""
    from segue.plan.tables import total_hours

    fits = {gpu.name: {"hours": total_hours(made, gpu, utilisation), "fits": made.fits(gpu)} for gpu in gpus}
    return {"plan": made, "flops": made.flops, "peak": made.peak(), "disk": made.disk, "gpus": fits}
