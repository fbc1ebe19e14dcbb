"""`segue train`: train and test every step of a scenario."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from segue.cli._stories import USE
from segue.cli._tell import print_tables, quote, tell, tell_next
from segue.cli.options import (
    Device,
    Manifest,
    ModeOption,
    On,
    Quiet,
    Seed,
    SplitOption,
    Target,
    Words,
    flag,
    out_option,
    resolve_target,
    with_manifest,
)

if TYPE_CHECKING:
    from segue.core.records import RunRecord

STORY, PLACE = USE, 4
MOST_CLASSES = 11
"""classes whose scores fit a line; those of more are in the report"""
NOTHING = (
    "Every class is at 0. Train longer (train.epochs), start from a pretrained backbone"
    " (model.pretrained=true), or look at what the model sees ('segue data show')."
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
        out_option("Run folder; by default below runs/, named after the recipe."),
    ] = None,
    resume: Annotated[bool, flag("--resume", help="Continue a run of this recipe that was stopped.")] = False,
    overwrite: Annotated[bool, flag("--overwrite", help="Delete an earlier run in that folder.")] = False,
    start: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="RUN", help="A run with the same step 0, which is then not trained again."
        ),
    ] = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Train a model step by step, and test it after each step.

    segue train caf --on voc --split 15-5 data.root=FOLDER model.pretrained=true

    Network and batch fit the machine unless preset=laptop, gpu or paper is said.

    Everything else is a setting: KEY=VALUE.
    'segue show METHOD --on DATASET --split SPLIT --explain' lists every key with meaning, range and default.
    """
    from segue.core.progress import Display

    display, said = Display(quiet=quiet), with_manifest(words, manifest)
    config, folder = resolve_target(target, on, split, mode, seed, said, device, display.say)

    from segue.core.records import is_run
    from segue.engine.folder import default_folder
    from segue.engine.run import run  # torch: not before the recipe is known to be sound
    from segue.plan.preflight import before_run

    folder = out or folder or default_folder(config)
    if not (resume and is_run(folder)):  # it was said when the run began
        before_run([config], device, display)
    record = run(config, folder, resume, overwrite, device, display, start)
    if record is not None:
        print_tables([record])
        if not quiet and _learned_nothing(record):
            tell(NOTHING)
        if not quiet and len(record.steps[-1].classes) <= MOST_CLASSES:
            tell(_class_scores(record))
        tell(f"Run folder: {folder}")
        tell_next(f"report {quote(folder)}", "curves and pictures", silent=quiet)


def _class_scores(record: RunRecord) -> str:
    """IoU of every class at the end, in one line."""
    from segue.core.metrics import iou
    from segue.report.comparison import format_number

    last = record.steps[-1]
    shown = zip(last.classes, iou(last.matrix), strict=True)
    return "IoU at the end: " + ", ".join(f"{name} {format_number(100 * score, 1)}" for name, score in shown)


def _learned_nothing(record: RunRecord) -> bool:
    """No pixel of any class but background was found in the last test."""
    return not record.steps[-1].matrix.diagonal()[1:].any()
