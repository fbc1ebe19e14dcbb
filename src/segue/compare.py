"""Many methods in one setting or several: run every one that is not done yet, then show a line for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from rich.console import Console

from segue.core import plugins
from segue.core.config import RunConfig, as_dict, differences, parse_overrides
from segue.core.errors import UserError
from segue.core.records import atomic_file
from segue.core.remarks import Remarks, read_remarks
from segue.engine.folder import plain_name
from segue.engine.progress import Display
from segue.engine.recipe import find_recipe, resolve
from segue.many_runs import check_page, command_line, run_missing, setting_text, started_runs, write_page
from segue.report import MethodTable, methods_page, methods_table

REMARKS = "remarks.yaml"
"""beside the run folders of a setting: what a person adds to its page"""


@dataclass(frozen=True)
class Setting:
    """A data set, split and mode, and the recipes of every method and seed for it."""

    text: str
    folder: Path
    recipes: Mapping[str, Sequence[RunConfig]]
    """in the order of the rows"""
    remarks: Remarks

    def places(self, label: str) -> list[Path]:
        return [self.folder / f"{label}-s{seed}" for seed in range(len(self.recipes[label]))]

    @property
    def plan(self) -> dict[Path, RunConfig]:
        return {
            place: recipe
            for label, recipes in self.recipes.items()
            for place, recipe in zip(self.places(label), recipes, strict=True)
        }

    def table(self, seeds: int) -> MethodTable:
        """The runs that there are."""
        runs = {label: started_runs(self.places(label)) for label in self.recipes}
        recipes = {label: recipes[0] for label, recipes in self.recipes.items()}
        keeps = {label: _keeps(recipe) for label, recipe in recipes.items()}
        return MethodTable(self.text, seeds, runs, recipes, keeps, self.remarks, self.folder.name)


def compare_methods(
    methods: Sequence[str],
    dataset: str,
    splits: Sequence[str] = (),
    modes: Sequence[str] = (),
    words: Sequence[str] = (),
    recipe: Path | None = None,
    seeds: int = 1,
    out: Path = Path("runs/compare"),
    page: Path | None = None,
    device: str = "auto",
    console: Console | None = None,
) -> list[MethodTable]:
    """Run methods, named or `all`, with seeds 0, 1, ...: a table for each split and mode."""
    console = console or Console()
    _check_words(words)
    check_page(page)
    settings: list[Setting] = []
    for split, mode in product(dict.fromkeys(splits or [None]), dict.fromkeys(modes or [None])):
        recipes = {
            label: [
                resolve(name, dataset, split, mode, [*words, f"train.seed={seed}"], recipe)
                for seed in range(seeds)
            ]
            for label, name in _chosen(methods).items()
        }
        settings.append(_setting(recipes, out, page is not None))
    _check_folders(settings)
    plan = {place: recipe for setting in settings for place, recipe in setting.plan.items()}
    display = Display(console)
    failed = run_missing(plan, out, device, display)
    tables = [setting.table(seeds) for setting in settings]
    for position, table in enumerate(shown := [table for table in tables if table.entries]):
        console.print(methods_table(table), end="\n\n" if position + 1 < len(shown) else "\n")
    if failed is not None:
        raise failed
    if page is not None:
        options = {"on": dataset, "split": splits, "mode": modes, "methods": ",".join(methods)}
        options |= {"seeds": seeds, "out": out}
        command = command_line("compare", _recipe_name(recipe), options, [*map(_without_place, words)])
        _write(page, tables, command, display)
    return tables


def _write(page: Path, tables: Sequence[MethodTable], command: str, display: Display) -> None:
    """The charts, then the page that shows them."""
    text = methods_page(tables, command, page.stem)
    for table in tables:
        for name, picture in table.pictures(page.stem).items():
            with atomic_file(page.parent / name) as file:
                file.write(picture.svg.encode())
    write_page(page, text, display)


def _recipe_name(recipe: Path | None) -> list[str]:
    """As it is typed: a shipped recipe by its name alone."""
    if recipe is None:
        return []
    return [recipe.name if find_recipe(recipe.name) == recipe else str(recipe)]


def _without_place(word: str) -> str:
    """A setting for a page: of a path on this machine the last name alone."""
    key, _, value = word.partition("=")
    return f"{key}=FOLDER/{Path(value).name}" if Path(value).is_absolute() else word


def _setting(recipes: Mapping[str, Sequence[RunConfig]], out: Path, for_page: bool) -> Setting:
    order = sorted(recipes, key=lambda label: _rank(label, recipes[label][0]))
    recipes = {label: recipes[label] for label in order}
    _check_scenarios(recipes)
    text = setting_text(recipes[order[0]][0])
    folder = out / plain_name([text])
    remarks = Remarks()
    if for_page and (folder / REMARKS).is_file():  # a wrong file is refused before hours of training
        remarks = read_remarks(folder / REMARKS, {*plugins.names("method"), *recipes})
    return Setting(text, folder, recipes, remarks)


def _check_folders(settings: Sequence[Setting]) -> None:
    folders = [setting.folder for setting in settings]
    for setting in settings:
        if folders.count(setting.folder) > 1:
            raise UserError(
                f"Two of these settings would both be '{setting.text}' and share the folder {setting.folder}:"
                " name each split and mode once, or compare them one by one with another --out."
            )


def _keeps(recipe: RunConfig) -> str:
    """What a method keeps between steps with this recipe: an optional memory may be off."""
    params = recipe.method.params
    size = (params.get("memory") or {}).get("size", 0)
    rehearses = (params.get("rehearsal") or {}).get("weight", 0)
    memory = {
        "memory (optional)": f"memory of {size} images" if size else None,
        "features (optional)": "features" if rehearses else None,
    }
    parts = plugins.find("method", recipe.method.name).about.keeps.split(", ")
    return ", ".join(kept for part in parts if (kept := memory.get(part, part))) or "nothing"


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
