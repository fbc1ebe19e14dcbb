"""The ablation tables of the paper: run every row that is not done yet, then show the paper's numbers and
ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from segue.core.ablation import AblationTable, Row, read_ablation
from segue.core.config import RunConfig
from segue.core.errors import UserError, suggest
from segue.core.overrides import merge, parse_overrides
from segue.core.progress import Display
from segue.engine.folder import plain_name
from segue.engine.recipe import complete, for_method, recipe_folder, with_preset
from segue.report import Ablation, ablation_page, ablation_table
from segue.studies.jobs import Workers
from segue.studies.missing import run_missing, started_runs
from segue.studies.pages import check_page, command_line, write_page
from segue.studies.requests import check_free, setting_text


def table_files() -> dict[str, Path]:
    """The shipped tables by name, those of the paper first."""
    paths = (recipe_folder() / "ablations").glob("*.yaml")
    return {path.stem: path for path in sorted(paths, key=lambda p: (not p.stem.startswith("table"), p.stem))}


def ablate(
    names: Sequence[str],
    dataset: str,
    split: str | None = None,
    mode: str | None = None,
    words: Sequence[str] = (),
    seeds: int = 1,
    out: Path = Path("runs/ablations"),
    page: Path | None = None,
    device: str = "auto",
    console: Console | None = None,
    recipe: Path | None = None,
    quiet: bool = False,
    workers: Workers | None = None,
) -> list[Ablation]:
    """Run the rows of some tables with seeds 0, 1, ...; rows that are the same experiment are run once."""
    console = console or Console()
    check_free(words, {"train.seed": "every row has seeds 0, 1, ..., as many as --seeds says"})
    check_page(page)
    notes = dict[str, None]()
    tables = {name: read_ablation(path) for name, path in _chosen(names).items()}
    plans = {
        name: [
            [
                row_recipe(table, row, dataset, split, mode, words, seed, recipe, device, notes.setdefault)
                for seed in range(seeds)
            ]
            for row in table.rows
        ]
        for name, table in tables.items()
    }
    runs: dict[Path, RunConfig] = {}
    folders: dict[str, list[list[Path]]] = {}
    for name, table in tables.items():
        folders[name] = []
        for row, recipes in zip(table.rows, plans[name], strict=True):
            places = [out / _setting_name(each) / f"{row.run}-s{each.train.seed}" for each in recipes]
            folders[name].append(places)
            runs.update(zip(places, recipes, strict=True))
    display = Display(console, quiet)
    for note in notes:
        display.say(note)
    failed = run_missing(runs, out, device, display, workers)
    ablations = []
    for name, table in tables.items():
        records = tuple(map(started_runs, folders[name]))
        ablations.append(Ablation(name, table, setting_text(plans[name][0][0]), records))
        console.print(ablation_table(ablations[-1]))
    if failed is not None:
        raise failed
    if page is not None:
        options = {"on": dataset, "split": split, "mode": mode, "seeds": seeds, "out": out}
        command = command_line("ablate", names, options, words, recipe)
        write_page(page, ablation_page(ablations, command), display)
    return ablations


def row_recipe(
    table: AblationTable,
    row: Row,
    dataset: str,
    split: str | None,
    mode: str | None,
    words: Sequence[str],
    seed: int,
    recipe: Path | None = None,
    device: str = "auto",
    say: Callable[[str], None] | None = None,
) -> RunConfig:
    """The recipe of one row: a recipe file, what all rows share, what was asked for, what makes the row."""
    setting = table.settings.get(dataset, {})
    scenario = {
        "dataset": dataset,
        "split": split or setting.get("split"),
        "mode": mode or setting.get("mode"),
    }
    said: dict[str, Any] = {"scenario": {key: value for key, value in scenario.items() if value}}
    said["method"] = {"params": table.params}
    # what makes the row wins over the words, or a word could undo it
    fixed: dict[str, Any] = {"train": {"seed": seed}, "method": {"name": "caf", "params": row.params}}
    stored = for_method("caf", recipe) if recipe else {}
    asked = merge(merge(merge(stored, said), parse_overrides(words)), fixed)
    asked, preset = with_preset(asked, stored, device, say)
    config = complete(asked, preset)
    if not row.times:
        return config
    params = {name: getattr(config.method.params, name) * factor for name, factor in row.times.items()}
    return complete(merge(asked, {"method": {"params": params}}), preset)


def _chosen(names: Sequence[str]) -> dict[str, Path]:
    files = table_files()
    if list(names) == ["all"]:
        return files
    for name in names:
        if name not in files:
            raise UserError(f"There is no ablation table '{name}'.{suggest(name, files)}")
    if not names:
        raise UserError(f"Which table? Name one of: {', '.join(files)}, or all.")
    return {name: files[name] for name in names}


def _setting_name(config: RunConfig) -> str:
    """Runs of one setting and variant lie together."""
    variant = config.method.params.variant
    return plain_name([setting_text(config), *([] if variant == "segue" else [variant])])
