"""A plan as tables of 80 columns, and what it takes for granted in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.table import Table

from segue.core.amounts import size_text, time_text
from segue.plan.gpus import Gpu
from segue.plan.needs import USABLE, Plan

MOST_STEPS = 12
"""rows for steps: with more the middle ones are left out"""


def plan_tables(plan: Plan, gpus: Sequence[Gpu], utilisation: float) -> Iterator[Table]:
    chosen = gpus[0] if len(gpus) == 1 else None
    yield _steps(plan, chosen, utilisation)
    yield _needs(plan)
    yield _gpus(plan, gpus, utilisation)


def plan_notes(plan: Plan, gpus: Sequence[Gpu], utilisation: float) -> Iterator[str]:
    """What the figures rest on."""
    yield f"Images: {plan.images_from}."
    yield (
        "FLOPs: convolutions and matrix products of a real iteration with few images, two for a"
        " multiply-add. Memory: the tensors of that iteration, followed one by one."
    )
    computed = {gpu.peak(plan.precision)[1] for gpu in gpus}
    if plan.precision == "bf16" and computed - {"bf16"}:
        yield "bf16 needs Ampere or newer: older GPUs are counted at fp32; take train.precision=fp16 there."
    elif "tf32" in computed:
        yield "fp32 is computed as TF32 where the GPU can: PyTorch's default for convolutions."
    yield (
        f"Hours: peak by the vendor x {utilisation:.0%} utilisation (--utilisation). Depthwise networks reach"
        " less. Reading images, testing, and the exchange between processes are not in them."
    )
    yield f"Fits: at most {USABLE:.0%} of the GPU's memory; the rest is for CUDA itself and gaps."


def verdict(plan: Plan, gpu: Gpu) -> str:
    if plan.fits(gpu):
        return "fits"
    accumulate = plan.remedy(gpu)
    if accumulate is not None:
        return f"with train.accumulate={accumulate}"
    return "no; smaller crop" if plan.checkpointing else "no; try train.checkpointing=true"


def _steps(plan: Plan, gpu: Gpu | None, utilisation: float) -> Table:
    table = Table(title=f"{plan.title}\n{plan.network}, {plan.crop} px", title_style="bold")
    names = ["step", "channels", "images", "iterations", "FLOPs"]
    for name in [*names, *([f"hours on {gpu.name}"] if gpu is not None else [])]:
        table.add_column(name, justify="right")
    shown = list(plan.steps)
    if len(shown) > MOST_STEPS:
        shown = [*shown[: MOST_STEPS - 1], shown[-1]]
    for step in shown:
        if step is shown[-1] and len(shown) < len(plan.steps):
            table.add_row("...")
        hours = [] if gpu is None else [time_text(3600 * plan.hours(step, gpu, utilisation))]
        cells = (str(step.index), str(step.channels), f"{step.images:,}", f"{step.iterations:,}")
        table.add_row(*cells, flops_text(step.flops), *hours)
    table.add_section()
    hours = [] if gpu is None else [time_text(3600 * total_hours(plan, gpu, utilisation))]
    images, iterations = (
        sum(getattr(step, name) for step in plan.steps) for name in ("images", "iterations")
    )
    table.add_row("all", "", f"{images:,}", f"{iterations:,}", flops_text(plan.flops), *hours)
    return table


def _needs(plan: Plan) -> Table:
    """The step that needs the most memory, part by part; then what stays on disk."""
    step = plan.largest
    one, images = step.footprint, plan.at_once(step, plan.accumulate)
    table = Table(title=f"What it needs (step {step.index})", title_style="bold")
    table.add_column("what")
    for name in ("number", "bytes"):
        table.add_column(name, justify="right")
    table.add_row("student", count_text(one.parameters), size_text(one.weights))
    table.add_row("  trained: gradients", count_text(one.trainable), size_text(one.gradients))
    if plan.processes > 1:
        table.add_row("  their copies, to exchange", "", size_text(one.gradients))
    table.add_row("  momentum", "", size_text(one.momentum))
    table.add_row("teacher", count_text(one.teacher_parameters), size_text(one.teacher))
    table.add_row("what the method keeps", "", size_text(one.kept))
    table.add_row("activations of an image", "", size_text(one.image))
    table.add_row("activations at a time", f"{images} images", size_text(one.activations(images)))
    where = "peak of each process" if plan.processes > 1 else "peak"
    table.add_row(where, "", size_text(plan.peak()), style="bold")
    table.add_section()
    for name, each in (("student", one.student_flops), ("teacher", one.teacher_flops),
                       ("the method's own", one.method_flops)):  # fmt: skip
        table.add_row(f"FLOPs of an iteration: {name}", flops_text(step.batch * each))
    table.add_section()
    for row in _disk(plan):
        table.add_row(*row)
    return table


def _disk(plan: Plan) -> Iterator[tuple[str, str, str]]:
    yield "checkpoint of a finished step", f"{plan.kept_finished} kept", size_text(plan.finished_bytes)
    yield "checkpoint inside a step", f"{plan.kept_checkpoints} kept", size_text(plan.inside_bytes)
    yield "records, manifest, log", "", size_text(plan.records_bytes)
    yield "disk, at most", "", size_text(plan.disk)
    yield "exported model", "", size_text(plan.model_bytes)


def _gpus(plan: Plan, gpus: Sequence[Gpu], utilisation: float) -> Table:
    each = f", {plan.processes} of them" if plan.processes > 1 else ""
    table = Table(title=f"Expected at {plan.precision}{each}", title_style="bold")
    for name in ("GPU", "memory", "TFLOPS", "hours"):
        table.add_column(name, justify="left" if name == "GPU" else "right")
    table.add_column(f"{size_text(plan.peak())} at a time")
    for gpu in gpus:
        speed, computed = gpu.peak(plan.precision)
        hours = time_text(3600 * total_hours(plan, gpu, utilisation))
        table.add_row(
            gpu.name, f"{gpu.memory} GiB", f"{speed / 1e12:.0f} {computed}", hours, verdict(plan, gpu)
        )
    return table


def total_hours(plan: Plan, gpu: Gpu, utilisation: float) -> float:
    return sum(plan.hours(step, gpu, utilisation) for step in plan.steps)


def count_text(number: int) -> str:
    return f"{number / 1e6:.2f} M" if number else "-"


def flops_text(flops: float) -> str:
    for unit, name in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G")):
        if flops >= unit:
            return f"{flops / unit:.1f} {name}"
    return f"{flops / 1e6:.1f} M" if flops else "-"
