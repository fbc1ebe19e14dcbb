"""Fair tuning: every method gets equally many values of one setting, scored on held-out training images.

The section `tune` of a recipe says which: {mib: {method.params.kd_weight: [3, 10, 30, 100]}}. The choice is
written in the form of the section `methods`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from segue.core import plugins
from segue.core.config import RunConfig, parse_overrides
from segue.core.errors import UserError, suggest
from segue.core.records import atomic_file, read_yaml
from segue.engine.folder import plain_name
from segue.engine.progress import Display
from segue.engine.recipe import recipe_folder, resolve
from segue.many_runs import check_page, command_line, run_missing, setting_text, started_runs, write_page
from segue.report import Trials, TuningTable, choice_yaml, tuning_page, tuning_table

CHOICE = "choice.yaml"
"""beside the run folders of a setting"""
HOLD_OUT = "scenario.hold_out"
NOT_FREE = {
    "method": "it belongs to one method, but settings apply to all methods",
    "train.seed": "every run has seed 0",
    "eval.thin": "all held-out images are tested",
}
"""keys that words may not set, and why"""

Candidates = dict[str, tuple[str, tuple[float, ...]]]
"""key and values by method"""


def tune_methods(
    recipe: Path | None,
    methods: Sequence[str],
    dataset: str,
    split: str | None,
    mode: str | None = None,
    words: Sequence[str] = (),
    out: Path = Path("runs/tune"),
    page: Path | None = None,
    device: str = "auto",
    console: Console | None = None,
) -> TuningTable:
    """Run each value of methods, named or `all`, that the recipe lists, and choose one for each."""
    console = console or Console()
    if recipe is None:
        raise UserError("Which recipe? Name a .yaml file with a section 'tune', such as voc256.yaml.")
    listed = read_candidates(recipe)
    asked = _chosen(methods, listed, recipe)
    said = _checked(words, listed)
    check_page(page)
    recipes = {
        (name, value): _resolved(name, f"{key}={value}", dataset, split, mode, said, recipe)
        for name, (key, values) in asked.items()
        for value in values
    }
    _check_scenarios(recipes)
    first = next(iter(recipes.values()))
    setting = setting_text(first)
    folder = out / plain_name([setting])
    places = {(name, value): folder / f"{name}-{value:g}" for name, value in recipes}
    display = Display(console)
    failed = run_missing({places[each]: recipes[each] for each in recipes}, out, device, display)
    trials = {
        name: Trials(key, {value: next(iter(started_runs([places[name, value]])), None) for value in values})
        for name, (key, values) in asked.items()
    }
    table = TuningTable(setting, first.scenario.hold_out, trials)
    if table.finished:
        console.print(tuning_table(table))
    _write_choice(folder / CHOICE, table, listed, display)
    if failed is not None:
        raise failed
    if page is not None:
        options = {"on": dataset, "split": split, "mode": mode, "methods": ",".join(methods), "out": out}
        name = recipe.name if recipe.parent == recipe_folder() else str(recipe)
        command = command_line("tune", [name], options, [*map(_without_place, words)])
        write_page(page, tuning_page(table, command), display)
    return table


def read_candidates(recipe: Path) -> Candidates:
    """The section `tune` of a recipe: one key and equally many different values for each method."""
    section = read_yaml(recipe).get("tune")
    if not isinstance(section, Mapping) or not section:
        raise UserError(f"{recipe} has no section 'tune': {{mib: {{method.params.kd_weight: [3, 10, 30]}}}}.")
    known, found = plugins.names("method"), Candidates()
    for name, entry in section.items():
        where = f"{recipe}: tune: {name}"
        if name not in known:
            raise UserError(f"{where}: there is no such method.{suggest(str(name), known)}")
        if not isinstance(entry, Mapping) or len(entry) != 1:
            raise UserError(f"{where}: should be one key and its values: {{key: [3, 10, 30]}}.")
        ((key, values),) = entry.items()
        if not str(key).startswith(("method.params.", "optim.")):
            raise UserError(f"{where}: '{key}' cannot be tuned, only keys of method.params and optim.")
        found[name] = str(key), _numbers(values, f"{where}: {key}")
    (first, (_, values)), *others = found.items()
    for name, (_, theirs) in others:
        if len(theirs) != len(values):
            raise UserError(
                f"{recipe}: tune: {name} has {len(theirs)} values and {first} {len(values)}: for a fair"
                " choice every method has equally many."
            )
    return found


def _numbers(values: Any, where: str) -> tuple[float, ...]:
    if not isinstance(values, list) or len(values) < 2:
        raise UserError(f"{where}: should be a list of two values or more.")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise UserError(f"{where}: {value!r} is not a number (YAML wants 1.0e-3, not 1e-3).")
    if len({f"{value:g}" for value in values}) < len(values):  # as their folders are called
        raise UserError(f"{where}: {values} are not all different in six digits.")
    return tuple(map(float, values))


def _chosen(methods: Sequence[str], listed: Candidates, recipe: Path) -> Candidates:
    """The methods that are asked for, in the order of the recipe."""
    names = [name for name in methods if name]
    if not names:
        raise UserError(f"Which methods? Name some of: {', '.join(listed)}, or all.")
    for name in names:
        if name not in listed and name != "all":
            raise UserError(f"{recipe} has no values for '{name}'.{suggest(name, listed)}")
    return {name: each for name, each in listed.items() if name in names or "all" in names}


def _checked(words: Sequence[str], listed: Candidates) -> list[str]:
    """Words that leave free what tuning sets, with the share that is held out."""
    said = parse_overrides(words)
    tuned = {key: f"it is tuned for {name}" for name, (key, _) in listed.items()}
    for key, reason in (NOT_FREE | tuned).items():
        if _says(said, key):
            raise UserError(f"'{key}' is not free here: {reason}.")
    return [*words, *([] if _says(said, HOLD_OUT) else [f"{HOLD_OUT}=0.2"])]


def _says(values: Any, key: str) -> bool:
    for part in key.split("."):
        if not isinstance(values, Mapping) or part not in values:
            return False
        values = values[part]
    return True


def _resolved(
    method: str,
    trial: str,
    dataset: str,
    split: str | None,
    mode: str | None,
    words: Sequence[str],
    recipe: Path,
) -> RunConfig:
    try:
        return resolve(method, dataset, split, mode, [*words, "eval.thin=1", "train.seed=0", trial], recipe)
    except UserError as error:
        raise UserError(f"{recipe}: {method} with {trial}: {error}") from error


def _check_scenarios(recipes: Mapping[tuple[str, float], RunConfig]) -> None:
    """All runs are scored on the same images, and these are no test images."""
    first, *others = recipes.items()
    if not first[1].scenario.hold_out:
        raise UserError(f"'{HOLD_OUT}' is 0: then the test images would choose. Say a share, such as 0.2.")
    for (name, _), config in others:
        if (config.scenario, config.data) != (first[1].scenario, first[1].data):
            raise UserError(
                f"{first[0][0]} and {name} cannot stand in one table: 'scenario' or 'data' is another."
            )


def _without_place(word: str) -> str:
    """A setting for a page: of a path on this machine the last name alone."""
    key, _, value = word.partition("=")
    return f"{key}=FOLDER/{Path(value).name}" if Path(value).is_absolute() else word


def _write_choice(path: Path, table: TuningTable, listed: Candidates, display: Display) -> None:
    """Choices of earlier calls stay where their method is not asked for now and still has that value."""
    earlier = read_yaml(path) if path.is_file() else {}
    kept = {
        name: earlier[name]
        for name, (key, values) in listed.items()
        if name not in table.trials and earlier.get(name) in [{key: value} for value in values]
    }
    choice = kept | table.choice
    if not choice and not earlier:
        return
    with atomic_file(path) as file:
        file.write(choice_yaml({name: choice[name] for name in listed if name in choice}).encode())
    display.say(f"Choice: {path}")
