"""Commands on one run: train, show, eval, export, report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from segue.cli.options import (
    Device,
    Manifest,
    ModeOption,
    On,
    RunFolder,
    Seed,
    SplitOption,
    Target,
    Words,
    settings,
    tell,
    with_manifest,
)
from segue.core.errors import UserError


def resolve_target(
    target: str,
    on: str | None,
    split: str | None,
    mode: str | None,
    seed: int | None,
    words: list[str] | None,
):
    """The recipe that a target and its options name, and the run folder if the target is one."""
    from segue.engine.recipe import find_recipe, resolve
    from segue.engine.restore import stored_recipe

    said = settings(words, seed)
    if (Path(target) / "recipe.yaml").is_file():
        if on or split or mode:
            raise UserError("--on, --split and --mode do not go with a run folder: its recipe says them.")
        return stored_recipe(target, said), Path(target)
    if target.endswith((".yaml", ".yml")):
        return resolve(None, on, split, mode, said, file=find_recipe(target)), None
    if "/" in target and not target.endswith(".py"):
        raise UserError(f"{target} is not a run folder: it has no recipe.yaml.")
    return resolve(target, on, split, mode, said), None


def train(
    target: Target,
    words: Words = None,
    on: On = None,
    split: SplitOption = None,
    mode: ModeOption = None,
    manifest: Manifest = None,
    seed: Seed = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Run folder; runs/METHOD-DATASET-SPLIT-MODE-SEED if not given."),
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
    from segue.engine.folder import default_folder
    from segue.engine.progress import Display
    from segue.engine.run import run

    config, folder = resolve_target(target, on, split, mode, seed, with_manifest(words, manifest))
    folder = out or folder or default_folder(config)
    record = run(config, folder, resume, overwrite, device, Display(), start)
    if record is not None:
        _print_tables([record])
        tell(f"Records: {folder}/steps. Page: segue report {folder}")


def show(
    target: Target,
    words: Words = None,
    on: On = None,
    split: SplitOption = None,
    mode: ModeOption = None,
    manifest: Manifest = None,
    seed: Seed = None,
) -> None:
    """Print the resolved recipe: everything that a run would use."""
    from segue.core.config import to_yaml

    config, _ = resolve_target(target, on, split, mode, seed, with_manifest(words, manifest))
    print(to_yaml(config), end="")


def evaluate(
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
    from segue.engine.progress import Display
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


def export(
    folder: RunFolder,
    out: Annotated[
        Path, typer.Argument(metavar="MODEL", help="The file to write, such as model.safetensors.")
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


def report(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run folders to compare.")],
    out: Annotated[
        Path,
        typer.Option("--out", help="File to write; the ending says what: .html, .md, .csv or .json."),
    ] = Path("report.html"),
) -> None:
    """Compare runs: tables here, and one self-contained HTML page with curves and pictures."""
    from segue.core.records import read_run
    from segue.report import write_report

    runs = [read_run(folder) for folder in folders]
    if empty := [run.name for run in runs if not run.steps]:
        raise UserError(f"{empty[0]} has no finished step yet.")
    written = write_report(runs, out)
    _print_tables(runs)
    tell(f"Report: {written}")


def _print_tables(runs: list) -> None:
    from segue.report import metrics_table, results_table

    console = Console()
    console.print(results_table(runs))
    console.print(metrics_table(runs))


def _percent(value: float) -> str:
    return "-" if value != value else f"{100 * value:.1f}"
