"""Many methods on one benchmark or several: run every one that is not done yet, then show a line for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from rich.console import Console

from segue.core import plugins
from segue.core.config import RunConfig
from segue.core.declaration import keeps_with
from segue.core.errors import UserError
from segue.core.progress import Display
from segue.core.remarks import Remarks, read_remarks
from segue.engine.folder import plain_name
from segue.engine.recipe import complete, resolve
from segue.report import MethodTable, methods_page, methods_table
from segue.report.methods import ranks_chart
from segue.studies.jobs import Workers
from segue.studies.missing import run_missing, started_runs
from segue.studies.pages import check_page, command_line, without_place, write_page
from segue.studies.requests import check_scenarios, check_words, named_methods, setting_text

REMARKS = "remarks.yaml"
"""file beside the run folders of a benchmark, with remarks for its page"""
NOT_FREE = {"train.seed": "--seeds 3 runs every method with seeds 0, 1 and 2"}


@dataclass(frozen=True)
class Benchmark:
    """A data set, split and mode, and the recipes of every method and seed for it."""

    text: str
    folder: Path
    recipes: Mapping[str, Sequence[RunConfig]]
    """recipes of each method, in the order of the rows"""
    remarks: Remarks

    def places(self, label: str) -> list[Path]:
        return [self.folder / f"{label}-s{seed}" for seed in range(len(self.recipes[label]))]

    @property
    def runs(self) -> dict[Path, RunConfig]:
        return {
            place: recipe
            for label, recipes in self.recipes.items()
            for place, recipe in zip(self.places(label), recipes, strict=True)
        }

    def table(self, seeds: int) -> MethodTable:
        """The runs that there are, with the recipes that they were made by."""
        runs = {label: started_runs(self.places(label)) for label in self.recipes}
        recipes = {
            label: complete(runs[label][0].recipe) if runs[label] else recipes[0]
            for label, recipes in self.recipes.items()
        }
        chosen = {label: recipe.method for label, recipe in recipes.items()}
        keeps = {label: keeps_with(plugins.declared(x.name), x.params) for label, x in chosen.items()}
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
    quiet: bool = False,
    workers: Workers | None = None,
) -> list[MethodTable]:
    """Run methods, named or `all`, with seeds 0, 1, ...: a table for each split and mode."""
    console = console or Console()
    check_words(words, NOT_FREE)
    check_page(page)
    benchmarks: list[Benchmark] = []
    display, notes = Display(console, quiet), dict[str, None]()
    for split, mode in product(dict.fromkeys(splits or [None]), dict.fromkeys(modes or [None])):
        recipes = {
            label: [
                resolve(
                    name,
                    dataset,
                    split,
                    mode,
                    [*words, f"train.seed={seed}"],
                    recipe,
                    device,
                    notes.setdefault,
                )
                for seed in range(seeds)
            ]
            for label, name in _chosen(methods).items()
        }
        benchmarks.append(_benchmark(recipes, out, page is not None))
    _check_folders(benchmarks)
    runs = {place: recipe for benchmark in benchmarks for place, recipe in benchmark.runs.items()}
    for note in notes:
        display.say(note)
    failed = run_missing(runs, out, device, display, workers)
    tables = [benchmark.table(seeds) for benchmark in benchmarks]
    for position, table in enumerate(shown := [table for table in tables if table.entries]):
        console.print(methods_table(table), end="\n\n" if position + 1 < len(shown) else "\n")
    if failed is not None:
        raise failed
    if page is not None:
        names = ",".join(map(without_place, methods))
        options = {"on": dataset, "split": splits, "mode": modes, "methods": names}
        options |= {"seeds": seeds, "out": out}
        _write(page, tables, command_line("compare", [], options, words, recipe), display)
    return tables


def _write(page: Path, tables: Sequence[MethodTable], command: str, display: Display) -> None:
    """The charts, then the page that shows them."""
    text = methods_page(tables, command, page.stem)
    charts = [ranks_chart(tables, page.stem), *(table.charts(page.stem) for table in tables)]
    for name, chart in (pair for each in charts for pair in each.items()):
        chart.save(page.parent / name)
    write_page(page, text, display)


def _benchmark(recipes: Mapping[str, Sequence[RunConfig]], out: Path, for_page: bool) -> Benchmark:
    order = sorted(recipes, key=lambda label: _rank(label, recipes[label][0]))
    recipes = {label: recipes[label] for label in order}
    check_scenarios({label: seeds[0] for label, seeds in recipes.items()})
    text = setting_text(recipes[order[0]][0])
    folder = out / plain_name([text])
    remarks = Remarks()
    if for_page and (folder / REMARKS).is_file():  # a wrong file is refused before hours of training
        remarks = read_remarks(folder / REMARKS, {*plugins.names("method"), *recipes})
    return Benchmark(text, folder, recipes, remarks)


def _check_folders(benchmarks: Sequence[Benchmark]) -> None:
    folders = [benchmark.folder for benchmark in benchmarks]
    for benchmark in benchmarks:
        if folders.count(benchmark.folder) > 1:
            raise UserError(
                f"Two of these settings would both be '{benchmark.text}' and share the folder"
                f" {benchmark.folder}: name each split and mode once, or compare them one by one with"
                " another --out."
            )


def _chosen(methods: Sequence[str]) -> dict[str, str]:
    """Names of methods by the label of their rows and folders."""
    chosen: dict[str, str] = {}
    for name in named_methods(methods, plugins.names("method")):
        label = plain_name([Path(name).stem]) if name.endswith(".py") else name
        if label in chosen:
            raise UserError(f"{chosen[label]} and {name} would share a row: give the file another name.")
        chosen[label] = name
    return chosen


def _rank(label: str, recipe: RunConfig) -> tuple[bool, bool, int, str]:
    """Place of a row: the lower bound, then methods by their year, then the upper bound."""
    year = plugins.declared(recipe.method.name).about.year
    return label != "finetune", label == "joint", year, label
