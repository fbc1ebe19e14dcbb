"""What several commands share: their options, and how a result is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from segue.core.errors import UserError

Target = Annotated[
    str,
    typer.Argument(
        metavar="METHOD", help="A method (caf), a method file (mine.py), a recipe (my.yaml) or a run folder."
    ),
]
Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=VALUE", help="Settings, such as optim.lr_next=0.001 data.root=FOLDER."),
]
RecipeWords = Annotated[
    list[str] | None,
    typer.Argument(metavar="[RECIPE] [KEY=VALUE]...", help="A recipe (my.yaml) and settings for all runs."),
]
ON = typer.Option("--on", metavar="DATASET", help="Data set: see 'segue list datasets'.")
SPLIT = typer.Option("--split", help="15-5: 15 classes first, then 5 at a time; or 'cat,dog/person'.")
On = Annotated[str | None, ON]
SplitOption = Annotated[str | None, SPLIT]
ModeOption = Annotated[
    str | None, typer.Option("--mode", help="overlapped, disjoint, sequential or divided.")
]
Seed = Annotated[int | None, typer.Option("--seed", min=0, help="Seed of everything random.")]
Seeds = Annotated[int, typer.Option("--seeds", min=1, help="Runs per row, with seeds 0, 1, ...")]
Page = Annotated[Path | None, typer.Option("--page", metavar="FILE", help="Also write a Markdown page.")]
Manifest = Annotated[
    Path | None,
    typer.Option("--manifest", metavar="FILE", help="The images of every step: see 'segue scenario'."),
]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:1 or mps.")]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")]


def named_path(text: str | Path) -> Path:
    """A path that is to be written. An empty one would be the current folder: nobody means that."""
    if not str(text):
        raise typer.BadParameter("it is empty. Name the file or folder to write; . is the current folder.")
    return Path(text)


def out_option(help: str) -> Any:
    return typer.Option("--out", metavar="PATH", parser=named_path, help=help)


def settings(words: list[str] | None, seed: int | None) -> list[str]:
    return [*(words or []), *([] if seed is None else [f"train.seed={seed}"])]


def recipe_and_words(words: list[str] | None) -> tuple[Path | None, list[str]]:
    """A recipe that stands among the settings, and the settings."""
    from segue.engine.recipe import find_recipe

    files = [word for word in words or [] if "=" not in word and word.endswith((".yaml", ".yml"))]
    if len(files) > 1:
        raise UserError(f"Two recipes, {files[0]} and {files[1]}: name one.")
    return (find_recipe(files[0]) if files else None), [word for word in words or [] if word not in files]


def with_manifest(words: list[str] | None, manifest: Path | None) -> list[str]:
    """Words that name a manifest too, quoted: values are read as YAML."""
    return [*(words or []), *([f"scenario.manifest={json.dumps(str(manifest))}"] if manifest else [])]


def tell(message: str) -> None:
    Console().print(message, markup=False, highlight=False, soft_wrap=True)


def resolve_target(
    target: str,
    on: str | None,
    split: str | None,
    mode: str | None,
    seed: int | None,
    words: list[str] | None,
):
    """The recipe that a target and its options name, and the run folder if the target is one."""
    from segue.engine.recipe import find_recipe, resolve, stored_recipe

    said = settings(words, seed)
    if target and (Path(target) / "recipe.yaml").is_file():
        if on or split or mode:
            raise UserError("--on, --split and --mode do not go with a run folder: its recipe says them.")
        return stored_recipe(target, said), Path(target)
    if target.endswith((".yaml", ".yml")):
        return resolve(None, on, split, mode, said, file=find_recipe(target)), None
    if "/" in target and not target.endswith(".py"):
        raise UserError(f"{target} is not a run folder: it has no recipe.yaml.")
    return resolve(target, on, split, mode, said), None


def print_tables(runs: list) -> None:
    from segue.report import metrics_table, results_table

    console = Console()
    console.print(results_table(runs))
    console.print(metrics_table(runs))
