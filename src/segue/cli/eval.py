"""`segue eval`: test a finished step of a run anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from segue.cli._stories import USE
from segue.cli._tell import print_json, quote, tell_next
from segue.cli.options import Device, Json, Quiet, RunFolder, StepOption

if TYPE_CHECKING:
    import numpy as np

STORY, PLACE = USE, 5
MEANS = ("old", "new", "all", "old_bg", "all_bg")


def command(
    folder: RunFolder,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Settings that differ from the run's: data.root=FOLDER."),
    ] = None,
    step: StepOption = None,
    strategies: Annotated[
        str | None,
        typer.Option("--strategies", metavar="NAMES", help="Ways to predict: skip,zero,concat (CAF)."),
    ] = None,
    device: Device = "auto",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Test a finished step of a run again, class by class.

    segue eval runs/caf-voc-15-5-overlapped-s42 --strategies skip,zero,concat
    """
    from segue.core.progress import Display
    from segue.engine.recipe import stored_recipe
    from segue.engine.record import tested_policy
    from segue.engine.restore import evaluate_run
    from segue.plan.preflight import check_test
    from segue.report.comparable import tested_text

    chosen = list(dict.fromkeys(word.strip() for word in strategies.split(","))) if strategies else None
    config = stored_recipe(folder, words or [])
    check_test(config, device)
    confusions, names, num_first = evaluate_run(
        folder, step, words or [], device, Display(quiet=quiet), chosen
    )
    if as_json:
        print_json({"run": folder, "strategies": _scores(confusions, names, num_first)})
        return
    heads = list(confusions) if chosen else ["IoU"]
    policy = tested_policy(config)
    if step is None:  # the last step is tested on all images
        policy.pop("between", None)
    tested = f", on {text}" if (text := tested_text(policy)) else ""
    closed = ", background closed" if "background" in policy else ""
    title = f"IoU after a step of {folder}{tested}{closed}"
    Console().print(_table(title, heads, confusions, names, num_first))
    tell_next(f"report {quote(folder)}", "curves and pictures", silent=quiet)


def _table(
    title: str,
    heads: Sequence[str],
    confusions: Mapping[str, np.ndarray],
    names: Sequence[str],
    num_first: int,
) -> Table:
    """A column for each strategy."""
    table = Table(title=Text(title), caption="in percent; a dash: no ground truth")
    table.add_column("class")
    for head in heads:
        table.add_column(head, justify="right")
    found = _scores(confusions, names, num_first).values()
    for name in names:
        table.add_row(Text(name), *(_percent(scores["iou"][name]) for scores in found))
    table.add_section()
    for name in MEANS:
        table.add_row(name.replace("_bg", " with background"), *(_percent(scores[name]) for scores in found))
    return table


def _scores(confusions: Mapping[str, np.ndarray], names: Sequence[str], num_first: int) -> dict[str, dict]:
    """IoU of each class and their means, from 0 to 1, by strategy."""
    from segue.core.metrics import iou, step_scores

    found = {}
    for strategy, confusion in confusions.items():
        means = step_scores(confusion, num_first)
        per_class = dict(zip(names, iou(confusion), strict=True))
        found[strategy] = {"iou": per_class, **{name: getattr(means, name) for name in MEANS}}
    return found


def _percent(value: float) -> str:
    return "-" if value != value else f"{100 * value:.1f}"
