"""Fair tuning: every method gets equally many values of one setting, scored on held-out training images.

The section `tune` of a recipe says which: {mib: {method.params.kd_weight: [3, 10, 30, 100]}}. The choice is
written in the form of the section `methods`: one file for each score that may choose.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from segue.core import plugins
from segue.core.config import RunConfig
from segue.core.errors import UserError, suggest
from segue.core.overrides import parse_overrides
from segue.core.progress import Display
from segue.core.records import atomic_file, read_yaml
from segue.engine.folder import plain_name
from segue.engine.recipe import for_method, named_rows, resolve
from segue.report import Trials, TuningTable, choice_yaml, tuning_page, tuning_table
from segue.report.tables import sheet_table
from segue.report.tuning import CRITERIA, FIRST, Choice, price_sheet
from segue.studies.jobs import Workers
from segue.studies.missing import is_done, run_missing, started_runs
from segue.studies.pages import check_page, command_line, write_page
from segue.studies.requests import check_scenarios, check_words, named_methods, says, setting_text

CHOICE = {"all": "choice.yaml", "hIoU": "choice-hiou.yaml"}
"""files beside the run folders of a setting, by the score that chooses"""
HOLD_OUT = "scenario.hold_out"
NOT_FREE = {
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
    quiet: bool = False,
    workers: Workers | None = None,
    by: str = "all",
    used: Path | None = None,
) -> TuningTable:
    """Run each value of methods, named or `all`, that the recipe lists, and choose one for each.

    `by` is the score whose choice is to be used; every choice is written. `used` is a file with the choice of
    another split: what it loses on this one is shown.
    """
    console = console or Console()
    if recipe is None:
        raise UserError("Which recipe? Name a .yaml file with a section 'tune', such as voc256.yaml.")
    listed = read_candidates(recipe)
    asked = _chosen(methods, listed, recipe)
    tuned = {key: f"it is tuned for {name}" for name, (key, _) in listed.items()}
    check_words(words, NOT_FREE | tuned)
    check_page(page)
    if by not in CRITERIA:
        raise UserError(f"--by {by}: values are chosen by {' or by '.join(CRITERIA)}.")
    elsewhere = _read_choice(used) if used is not None else {}
    notes = dict[str, None]()
    resolved = partial(_resolved, recipe, dataset, split, mode, words, device, notes.setdefault)
    recipes = {name: resolved(name, *each) for name, each in asked.items()}
    first = _checked({name: next(iter(trials.values())) for name, trials in recipes.items()})
    setting = setting_text(first)
    folder = out / plain_name([setting])
    display = Display(console, quiet)
    for note in notes:
        display.say(note)
    stored = {each: read_yaml(folder / name) for each, name in CHOICE.items() if (folder / name).is_file()}
    runs = {place: config for name in asked for place, config in _runs(folder, name, recipes[name]).items()}
    failed = run_missing(runs, out, device, display, workers)
    table = TuningTable(setting, first.scenario.hold_out, _trials(folder, asked), by, elsewhere)
    if table.finished:
        console.print(tuning_table(table))
        if elsewhere:
            console.print(sheet_table(price_sheet(table), FIRST))
    _write_choices(table, listed, stored, folder, resolved, display)
    if failed is not None:
        raise UserError(
            f"{failed}\nA method has a choice when all its values are done: one that cannot be trained has no"
            f" place in the section 'tune' of {recipe}."
        ) from failed
    if page is not None:
        options = {"on": dataset, "split": split, "mode": mode, "methods": ",".join(methods), "out": out}
        options |= {"by": by if by != "all" else None, "used": used}
        command = command_line("tune", [], options, words, recipe)
        write_page(page, tuning_page(table, command), display)
    return table


def _write_choices(
    table: TuningTable,
    listed: Candidates,
    stored: Mapping[str, Choice],
    folder: Path,
    resolved: Callable[..., dict[float, RunConfig]],
    display: Display,
) -> None:
    """A file for each score that may choose; methods that were not asked for now keep what is stored."""
    others = {name: each for name, each in listed.items() if name not in table.trials}
    for score, file in CHOICE.items():
        choice = _earlier_choice(stored.get(score, {}), folder, others, resolved) | table.choice(score)
        _write_choice(folder / file, {name: choice[name] for name in listed if name in choice}, display)


def _read_choice(path: Path) -> Choice:
    """The choice that an earlier call has written for another split."""
    if not path.is_file():
        raise UserError(f"--used {path}: there is no such file; name a choice.yaml of another split.")
    choice = read_yaml(path)
    for name, entry in choice.items():
        if not isinstance(entry, Mapping) or len(entry) != 1:
            raise UserError(f"{path}: {name}: should be one key and its value: {{key: 3}}.")
    return dict(choice)


def read_candidates(recipe: Path) -> Candidates:
    """The section `tune` of a recipe: one key and equally many different values for each method.

    A row of the section `methods` under a name of its own counts as a method.
    """
    section = read_yaml(recipe).get("tune")
    if not isinstance(section, Mapping) or not section:
        raise UserError(f"{recipe} has no section 'tune': {{mib: {{method.params.kd_weight: [3, 10, 30]}}}}.")
    known, found = [*plugins.names("method"), *named_rows(recipe)], Candidates()
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
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not abs(value) <= sys.float_info.max:  # nor a NaN
            raise UserError(f"{where}: {value!r} is not a number (YAML wants 1.0e-3, not 1e-3).")
    if len({f"{value:g}" for value in values}) < len(values):  # as their folders are called
        raise UserError(f"{where}: {values} are not all different in six digits.")
    return tuple(map(float, values))


def _chosen(methods: Sequence[str], listed: Candidates, recipe: Path) -> Candidates:
    """The methods that are asked for, in the order of the recipe."""
    names = named_methods(methods, list(listed))
    for name in names:
        if name not in listed:
            raise UserError(f"{recipe} has no values for '{name}'.{suggest(name, listed)}")
    return {name: each for name, each in listed.items() if name in names}


def _resolved(
    recipe: Path,
    dataset: str,
    split: str | None,
    mode: str | None,
    words: Sequence[str],
    device: str,
    say: Callable[[str], None],
    method: str,
    key: str,
    values: Sequence[float],
) -> dict[float, RunConfig]:
    """Recipes of a method's trials. If neither words nor recipe say what share is held out, a fifth is."""
    held = any(says(each, HOLD_OUT) for each in (parse_overrides(words), for_method(method, recipe)))
    said, found = [*words, *([] if held else [f"{HOLD_OUT}=0.2"]), "eval.thin=1", "train.seed=0"], {}
    for value in values:
        trial = f"{key}={value}"
        try:
            found[value] = resolve(method, dataset, split, mode, [*said, trial], recipe, device, say)
        except UserError as error:
            raise UserError(f"{recipe}: {method} with {trial}: {error}") from error
    return found


def _checked(recipes: Mapping[str, RunConfig]) -> RunConfig:
    """The first of them: all are scored on the same images, and these are no test images."""
    check_scenarios(recipes)
    first = next(iter(recipes.values()))
    if not first.scenario.hold_out:
        raise UserError(f"'{HOLD_OUT}' is 0: then the test images would choose. Say a share, such as 0.2.")
    return first


def _place(folder: Path, method: str, value: float) -> Path:
    return folder / f"{method}-{value:g}"


def _runs(folder: Path, method: str, recipes: Mapping[float, RunConfig]) -> dict[Path, RunConfig]:
    return {_place(folder, method, value): config for value, config in recipes.items()}


def _trials(folder: Path, asked: Candidates) -> dict[str, Trials]:
    """The runs that there are."""
    return {
        name: Trials(
            key, {value: next(iter(started_runs([_place(folder, name, value)])), None) for value in values}
        )
        for name, (key, values) in asked.items()
    }


def _earlier_choice(
    stored: Choice, folder: Path, others: Candidates, resolved: Callable[..., dict[float, RunConfig]]
) -> Choice:
    """Choices of earlier calls stay where their method is not asked for now, still has that value, and all
    its runs are finished and have the recipes of today."""
    kept: Choice = {}
    for name, (key, values) in others.items():
        if stored.get(name) not in [{key: value} for value in values]:
            continue
        try:
            runs = _runs(folder, name, resolved(name, key, values))
            if all(is_done(place, config) for place, config in runs.items()):
                kept[name] = stored[name]
        except UserError:  # runs of another recipe lie there, or the recipe of today is wrong
            continue
    return kept


def _write_choice(path: Path, choice: Choice, display: Display) -> None:
    text = choice_yaml(choice).encode()
    before = path.read_bytes() if path.is_file() else None
    if before is None and not choice:
        return
    if text != before:  # a look at what is stored changes nothing
        with atomic_file(path) as file:
            file.write(text)
    display.say(f"Choice: {path}")
