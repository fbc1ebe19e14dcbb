"""Many methods in one setting: run every method that is not done yet, then show one line for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from segue.core import plugins
from segue.core.config import RunConfig, as_dict, differences, parse_overrides
from segue.core.errors import UserError
from segue.core.remarks import read_remarks
from segue.engine.folder import plain_name
from segue.engine.progress import Display
from segue.engine.recipe import resolve
from segue.many_runs import check_page, command_line, run_missing, setting_text, started_runs, write_page
from segue.report import MethodTable, methods_page, methods_table

REMARKS = "remarks.yaml"
"""beside the run folders of a setting: what a person adds to its page"""


def compare_methods(
    methods: Sequence[str],
    dataset: str,
    split: str | None,
    mode: str | None = None,
    words: Sequence[str] = (),
    recipe: Path | None = None,
    seeds: int = 1,
    out: Path = Path("runs/compare"),
    page: Path | None = None,
    device: str = "auto",
    console: Console | None = None,
) -> MethodTable:
    """Run methods, named or `all`, with seeds 0, 1, ... on the same scenario."""
    console = console or Console()
    _check_words(words)
    check_page(page)
    recipes = {
        label: [
            resolve(name, dataset, split, mode, [*words, f"train.seed={seed}"], recipe)
            for seed in range(seeds)
        ]
        for label, name in _chosen(methods).items()
    }
    recipes = {label: recipes[label] for label in sorted(recipes, key=lambda x: _rank(x, recipes[x][0]))}
    _check_scenarios(recipes)
    setting = setting_text(next(iter(recipes.values()))[0])
    folder = out / plain_name([setting])
    places = {label: [folder / f"{label}-s{seed}" for seed in range(seeds)] for label in recipes}
    remarks = None
    if page is not None and (folder / REMARKS).is_file():  # a wrong file is refused before hours of training
        remarks = read_remarks(folder / REMARKS, {*plugins.names("method"), *recipes})
    plan = {
        place: recipe
        for label in recipes
        for place, recipe in zip(places[label], recipes[label], strict=True)
    }
    display = Display(console)
    failed = run_missing(plan, folder, device, display)
    table = MethodTable(setting, seeds, {label: started_runs(places[label]) for label in recipes})
    if table.entries:
        console.print(methods_table(table))
    if failed is not None:
        raise failed
    if page is not None:
        options = {"on": dataset, "split": split, "mode": mode, "methods": ",".join(methods)}
        command = command_line("compare", (), options | {"seeds": seeds, "out": out}, words)
        write_page(page, methods_page(table, command, remarks), display)
    return table


def _check_words(words: Sequence[str]) -> None:
    said = parse_overrides(words)
    if "method" in said:
        word = next(word for word in words if word.split("=")[0].split(".")[0] == "method")
        raise UserError(
            f"'{word}' belongs to one method, but settings apply to all methods here. Leave it out, or train"
            " that method alone: segue train."
        )
    if isinstance(said.get("train"), Mapping) and "seed" in said["train"]:
        raise UserError("'train.seed' is not free here: --seeds 3 runs every method with seeds 0, 1 and 2.")


def _chosen(methods: Sequence[str]) -> dict[str, str]:
    """Names of methods by the label of their rows and folders."""
    names: list[str] = []
    for name in methods:
        names += plugins.names("method") if name == "all" else [name] if name else []
    if not names:
        raise UserError(f"Which methods? Name some of: {', '.join(plugins.names('method'))}, or all.")
    chosen: dict[str, str] = {}
    for name in dict.fromkeys(names):
        label = plain_name([Path(name).stem]) if name.endswith(".py") else name
        if label in chosen:
            raise UserError(f"{chosen[label]} and {name} would share a row: give the file another name.")
        chosen[label] = name
    return chosen


def _rank(label: str, recipe: RunConfig) -> tuple[bool, bool, int, str]:
    """Place of a row: the lower bound, then methods by their year, then the upper bound."""
    kind = plugins.find("method", recipe.method.name)
    if not hasattr(kind, "about"):
        raise UserError(f"{recipe.method.name}: the class {kind.__name__} lacks about, which says its year.")
    return label != "finetune", label == "joint", kind.about.year, label


def _check_scenarios(recipes: Mapping[str, Sequence[RunConfig]]) -> None:
    """Settings of a method's own may not lead it to other data than the others have."""
    first, *others = ((label, as_dict(seeds[0])) for label, seeds in recipes.items())
    for label, recipe in others:
        for section in ("scenario", "data"):
            if lines := differences(first[1][section], recipe[section], section):
                raise UserError(f"{first[0]} and {label} cannot stand in one table: {'; '.join(lines)}.")
