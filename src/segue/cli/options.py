"""What several commands share: their options, and how they name a recipe."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from segue.core.errors import UserError

if TYPE_CHECKING:
    from segue.core.config import RunConfig

MODES = ("overlapped", "disjoint", "sequential", "divided")
RECIPE_ENDINGS = (".yaml", ".yml")


def _recipe_names(incomplete: str) -> Iterator[str]:
    """Shipped recipes for the shell to complete; where none fits it completes files by itself."""
    from segue.engine.recipe import recipe_folder

    yield from (path.name for path in recipe_folder().glob("*.yaml") if path.name.startswith(incomplete))


def _plugin_names(kind: str, incomplete: str) -> list[str]:
    from segue.core import plugins

    return [name for name in plugins.names(kind) if name.startswith(incomplete)]


def method_names(incomplete: str) -> list[str]:
    return [*_plugin_names("method", incomplete), *_recipe_names(incomplete)]


def _dataset_names(incomplete: str) -> list[str]:
    return _plugin_names("dataset", incomplete)


def _modes(incomplete: str) -> list[str]:
    return [mode for mode in MODES if mode.startswith(incomplete)]


def flag(*names: str, help: str) -> Any:
    """An option without a value."""
    return typer.Option(*names, metavar="", help=help)


Target = Annotated[
    str,
    typer.Argument(
        metavar="METHOD",
        help="A method (caf), a method file (mine.py), a recipe (my.yaml) or a run folder.",
        autocompletion=method_names,
    ),
]
Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=VALUE", help="Settings, such as optim.lr_next=0.001 data.root=FOLDER."),
]
RecipeWords = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="RECIPE|KEY=VALUE",
        help="A recipe (my.yaml) and settings, such as data.root=FOLDER.",
        autocompletion=_recipe_names,
    ),
]
SourceWords = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="RECIPE|KEY=VALUE",
        help="A recipe (my.yaml) or a run folder, and settings, such as data.root=FOLDER.",
        autocompletion=_recipe_names,
    ),
]
ON = typer.Option(
    "--on",
    metavar="DATASET",
    help="Data set, or a data set file: see 'segue list datasets'.",
    autocompletion=_dataset_names,
)
SPLIT = typer.Option(
    "--split",
    metavar="SPLIT",
    help="15-5: 15 classes, then 5 at a time; 5-2-2: each step; or 'cat,dog/person'.",
)
MODE = typer.Option(
    "--mode", metavar="MODE", help="overlapped, disjoint, sequential or divided.", autocompletion=_modes
)
On = Annotated[str | None, ON]
SplitOption = Annotated[str | None, SPLIT]
ModeOption = Annotated[str | None, MODE]
Seed = Annotated[int | None, typer.Option("--seed", metavar="N", min=0, help="Seed of all random numbers.")]
Seeds = Annotated[int, typer.Option("--seeds", metavar="N", min=1, help="Runs per row, with seeds 0, 1, ...")]
Page = Annotated[Path | None, typer.Option("--page", metavar="FILE", help="Also write a Markdown page.")]
Manifest = Annotated[
    Path | None,
    typer.Option("--manifest", metavar="FILE", help="The images of every step: see 'segue scenario'."),
]
Device = Annotated[str, typer.Option("--device", metavar="DEVICE", help="auto, cpu, cuda, cuda:1 or mps.")]
GpusPerRun = Annotated[
    int,
    typer.Option("--gpus-per-run", metavar="N", min=1, help="GPUs of each run, by torchrun if more than 1."),
]
Cluster = Annotated[
    str | None,
    typer.Option("--cluster", metavar="ADDRESS", help="Run on a Ray cluster: auto or HOST:PORT."),
]
ModelPlace = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A model folder, a run folder, a model file, or a network from elsewhere: hf:FOLDER.",
    ),
]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")]
StepOption = Annotated[
    int | None,
    typer.Option("--step", metavar="N", help="After which step; the last finished one if not given."),
]
Quiet = Annotated[bool, flag("--quiet", "-q", help="Print errors and the result, nothing else.")]
Json = Annotated[bool, flag("--json", help="Print the result as JSON; stdout holds nothing else.")]


def named_path(text: str | Path) -> Path:
    """A path that is to be written. An empty one would be the current folder: nobody means that."""
    if not str(text):
        raise typer.BadParameter("it is empty. Name the file or folder to write; . is the current folder.")
    return Path(text)


def out_option(help: str, metavar: str = "FOLDER") -> Any:
    return typer.Option("--out", metavar=metavar, parser=named_path, help=help)


Submit = Annotated[
    Path | None,
    typer.Option(
        "--submit",
        metavar="FILE",
        parser=named_path,
        help="Do nothing but write this command as a Slurm job, for sbatch.",
    ),
]
ManifestOut = Annotated[
    Path,
    typer.Argument(metavar="OUT", parser=named_path, help="The manifest to write, such as scenario.json."),
]


def settings(words: list[str] | None, seed: int | None) -> list[str]:
    return [*(words or []), *([] if seed is None else [f"train.seed={seed}"])]


def is_recipe(word: str) -> bool:
    return "=" not in word and word.endswith(RECIPE_ENDINGS)


def recipe_and_words(words: list[str] | None) -> tuple[Path | None, list[str]]:
    """A recipe that stands among the settings, and the settings."""
    from segue.engine.recipe import find_recipe

    files = [word for word in words or [] if is_recipe(word)]
    if len(files) > 1:
        raise UserError(f"Two recipes, {files[0]} and {files[1]}: name one.")
    return (find_recipe(files[0]) if files else None), [word for word in words or [] if word not in files]


def source_and_words(words: list[str] | None) -> tuple[Path | None, list[str]]:
    """A recipe or a run folder that stands among the settings, and the settings."""
    from segue.core.records import is_run

    folders = [word for word in words or [] if word and is_run(word)]
    recipe, said = recipe_and_words([word for word in words or [] if word not in folders])
    sources = [*map(Path, folders), *([recipe] if recipe else [])]
    if len(sources) > 1:
        raise UserError(f"{sources[0]} and {sources[1]} both name a recipe: leave one out.")
    return (sources[0] if sources else None), said


def with_manifest(words: list[str] | None, manifest: Path | None) -> list[str]:
    """Words that name a manifest too, quoted: values are read as YAML."""
    return [*(words or []), *([f"scenario.manifest={json.dumps(str(manifest))}"] if manifest else [])]


def recipe_of_run(
    folder: str | Path, on: str | None, split: str | None, mode: str | None, words: Sequence[str]
) -> RunConfig:
    """The recipe of a run folder, which names data set, split and mode itself."""
    from segue.engine.recipe import stored_recipe

    if on or split or mode:
        raise UserError("--on, --split and --mode do not go with a run folder: its recipe says them.")
    return stored_recipe(folder, words)


def resolve_target(
    target: str,
    on: str | None,
    split: str | None,
    mode: str | None,
    seed: int | None,
    words: list[str] | None,
    device: str = "auto",
    say: Callable[[str], None] | None = None,
) -> tuple[RunConfig, Path | None]:
    """The recipe that a target and its options name, and the run folder if the target is one.

    `say` hears which preset was chosen for the device, if one was.
    """
    from segue.core.records import is_run
    from segue.engine.recipe import find_recipe, resolve

    said = settings(words, seed)
    if target and is_run(target):
        return recipe_of_run(target, on, split, mode, said), Path(target)
    if is_recipe(target):
        return resolve(None, on, split, mode, said, find_recipe(target), device, say), None
    if "/" in target and not target.endswith(".py"):
        raise UserError(f"{target} is not a run folder: it has no recipe.yaml.")
    return resolve(target, on, split, mode, said, None, device, say), None
