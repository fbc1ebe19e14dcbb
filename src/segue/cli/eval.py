"""`segue eval`: test a finished step of a run anew."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from segue.cli.options import (
    Device,
    RunFolder,
    Words,
)


def command(
    folder: RunFolder,
    words: Words = None,
    step: Annotated[
        int | None, typer.Option("--step", help="Step to test; the last finished one if not given.")
    ] = None,
    strategies: Annotated[
        str | None, typer.Option("--strategies", help="Ways to predict, such as skip,zero,concat (CAF).")
    ] = None,
    device: Device = "auto",
) -> None:
    """Test a finished step of a run anew, class by class.

    segue eval runs/caf-voc-15-5-overlapped-s42 --strategies skip,zero,concat
    """
    from segue.core.metrics import iou, step_scores
    from segue.core.progress import Display
    from segue.engine.restore import evaluate_run

    chosen = list(dict.fromkeys(word.strip() for word in strategies.split(","))) if strategies else None
    confusions, names, num_first = evaluate_run(folder, step, words or [], device, Display(), chosen)
    table = Table(title=Text(f"IoU after a step of {folder}"), caption="in percent; a dash: no ground truth")
    table.add_column("class")
    for name in confusions:
        table.add_column(name if chosen else "IoU", justify="right")
    per_class = [iou(confusion) for confusion in confusions.values()]
    for name, values in zip(names, zip(*per_class, strict=True), strict=True):
        table.add_row(Text(name), *map(_percent, values))
    scores = [step_scores(confusion, num_first) for confusion in confusions.values()]
    table.add_section()
    for name in ("old", "new", "all", "old_bg", "all_bg"):
        values = (_percent(getattr(score, name)) for score in scores)
        table.add_row(name.replace("_bg", " with background"), *values)
    Console().print(table)


def _percent(value: float) -> str:
    return "-" if value != value else f"{100 * value:.1f}"
