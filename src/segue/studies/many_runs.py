"""Many runs under one folder: do those that are missing, and make a page from all of them."""

from __future__ import annotations

import functools
import json
import math
import os
import shlex
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml

from segue.core import plugins
from segue.core.config import RunConfig, as_dict, differences, parse_overrides
from segue.core.errors import UserError
from segue.core.progress import Display
from segue.core.records import RunRecord, atomic_file, read_run, read_yaml
from segue.engine.build import build_data, build_method
from segue.engine.checkpoint import CheckpointStore
from segue.engine.folder import MAY_CHANGE, check_folder, check_images, identity
from segue.engine.recipe import find_recipe
from segue.engine.runtime import pick_device
from segue.engine.start import FirstStep, can_be_taken, first_step, has_first_step, stored_first_step
from segue.studies.pool import Job, run_all


def run_missing(plan: Mapping[Path, RunConfig], out: Path, device: str, display: Display) -> UserError | None:
    """Carry out the runs of a plan that are not finished yet. What fails does not take the others with it:
    it is returned."""
    missing = {place: recipe for place, recipe in plan.items() if not is_done(place, recipe)}
    manifest_of = _Manifests(display)
    done = {place: recipe for place, recipe in plan.items() if place not in missing}
    _check_images(done, manifest_of, read_anyway=bool(missing))
    if not missing:
        return None
    pick_device(device)
    _check_start(missing, out)
    jobs = _sharing_first_steps(missing, out, manifest_of)
    display.say(f"Runs to do: {len(jobs)}; done: {len(plan) - len(jobs)}. All are kept in {out}.")
    try:
        run_all(jobs, device, display, keep_going=True)
    except UserError as error:
        return error
    return None


def _check_start(missing: Mapping[Path, RunConfig], out: Path) -> None:
    """What would stop a run at its beginning is said once, before any of them is trained."""
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file: name a folder with --out.")
    new = [recipe for place, recipe in missing.items() if not CheckpointStore(place).entries()]
    models = set[str]()
    for recipe in {str((recipe.model, recipe.method)): recipe for recipe in new}.values():
        # the weights of a model are read once: that takes longest
        build_method(recipe, torch.device("cpu"), initial_weights=str(recipe.model) not in models)
        models.add(str(recipe.model))


class _Manifests:
    """The images of a recipe's steps; the data is read once for all recipes that mean the same images."""

    def __init__(self, display: Display) -> None:
        self.display, self.found = display, dict[str, dict[str, Any]]()

    def __call__(self, recipe: RunConfig) -> dict[str, Any]:
        plain = as_dict(recipe)
        offline = plugins.find("method", recipe.method.name).offline
        batches = plain["train"] | {"seed": None}  # of methods whose batches differ, each may be too small
        key = json.dumps([plain["scenario"], plain["data"], plain["eval"], batches, offline])
        if key not in self.found:
            self.found[key] = build_data(recipe, self.display).manifest()
        return self.found[key]


def _check_images(done: Mapping[Path, RunConfig], manifest_of: _Manifests, read_anyway: bool) -> None:
    """Finished runs, too, have to be of the images that are meant now; not where only records are kept."""
    for place, recipe in done.items():
        before = read_yaml(place / "recipe.yaml").get("data", {}).get("root")
        moved = (
            before is not None and Path(before).resolve() != Path(recipe.data.get("root", before)).resolve()
        )
        if (read_anyway or moved) and (place / "scenario.json").is_file():
            try:
                check_images(place, manifest_of(recipe))
            except UserError as error:
                raise UserError(f"{error} For other data name another folder with --out.") from error


def _sharing_first_steps(missing: Mapping[Path, RunConfig], out: Path, manifest_of: _Manifests) -> list[Job]:
    """Jobs for these runs, each with a run whose step 0 it can take: one under `out`, or one of the others.

    Reads the data of every run, so that bad data or a bad split is said before anything is trained.
    """
    wanted = {place: first_step(recipe, manifest_of(recipe)) for place, recipe in missing.items()}
    donors = _first_steps(out, {recipe.method.name for recipe in missing.values()})
    # in each folder first those that gather state: others can start from them, but not the other way round
    folders = list(dict.fromkeys(place.parent for place in missing))
    takers = {each.hash for each in wanted.values() if each.gathered is None}
    gives = {place: each.gathered is not None and each.hash in takers for place, each in wanted.items()}
    sound, jobs = functools.cache(can_be_taken), []
    for place in sorted(missing, key=lambda x: (folders.index(x.parent), not gives[x])):
        fitting = (
            donor
            for donor, theirs in donors.items()
            if wanted[place].can_start_from(theirs) and (donor in missing or sound(donor))
        )
        start = next(fitting, None)
        donors.setdefault(place, wanted[place])
        jobs.append(Job(missing[place], place, resume=True, start=start if start != place else None))
    return jobs


def _first_steps(out: Path, methods: Container[str]) -> dict[Path, FirstStep]:
    """The runs under a folder that have a step 0, and what decided it.

    Folders that cannot be understood are none. Method files are imported only if they are asked for anyway.
    """
    found: dict[Path, FirstStep] = {}
    for folder, inside, files in os.walk(out):
        inside.sort()
        if "recipe.yaml" not in files:
            continue
        inside.clear()  # a run holds no other
        place = Path(folder)
        try:
            name = str(dict(read_yaml(place / "recipe.yaml").get("method") or {}).get("name"))
            if has_first_step(place) and (name in methods or not name.endswith(".py")):
                found[place] = stored_first_step(place)[0]
        except (UserError, TypeError, ValueError):
            continue
    return found


def started_runs(places: Iterable[Path]) -> tuple[RunRecord, ...]:
    return tuple(read_run(place) for place in places if (place / "recipe.yaml").is_file())


def setting_text(config: RunConfig) -> str:
    """Data set, split and mode."""
    scenario = config.scenario
    split = scenario.split if isinstance(scenario.split, str) else "custom"
    return f"{scenario.dataset} {split} {scenario.mode}"


def named_methods(methods: Sequence[str], known: Sequence[str]) -> list[str]:
    """The methods that are asked for, each once; `all` are those that are known."""
    names = [each for name in methods if name for each in (known if name == "all" else [name])]
    if not names:
        raise UserError(f"Which methods? Name some of: {', '.join(known)}, or all.")
    return list(dict.fromkeys(names))


def check_words(words: Sequence[str], not_free: Mapping[str, str]) -> None:
    """Settings apply to all methods. `not_free`: keys that may not be set, and why."""
    said = parse_overrides(words)
    if "method" in said:
        word = next(word for word in words if word.split("=")[0].split(".")[0] == "method")
        raise UserError(
            f"'{word}' belongs to one method, but settings apply to all methods here. Leave it out, or train"
            " that method alone: segue train."
        )
    check_free(words, not_free)


def check_free(words: Sequence[str], not_free: Mapping[str, str]) -> None:
    for key, reason in not_free.items():
        if says(parse_overrides(words), key):
            raise UserError(f"'{key}' is not free here: {reason}.")


def says(values: Any, key: str) -> bool:
    """Whether nested values have a dotted key."""
    for part in key.split("."):
        if not isinstance(values, Mapping) or part not in values:
            return False
        values = values[part]
    return True


def check_scenarios(recipes: Mapping[str, RunConfig]) -> None:
    """Settings of a method's own may not lead it to other data than the others have."""
    first, *others = ((label, as_dict(recipe)) for label, recipe in recipes.items())
    for label, recipe in others:
        for section in ("scenario", "data", "eval"):
            lines = differences(first[1][section], recipe[section], section)
            if lines := [line for line in lines if line.split(":")[0] not in MAY_CHANGE]:
                raise UserError(f"{first[0]} and {label} cannot stand in one table: {'; '.join(lines)}.")


def command_line(
    verb: str,
    arguments: Sequence[str],
    options: Mapping[str, object],
    words: Sequence[str],
    recipe: Path | None = None,
) -> str:
    """The command that asks for this, for a page: as it is typed, but without places on this machine.

    An option with a list is said once for each, a shipped recipe by its name alone.
    """
    said = [
        word
        for name, value in options.items()
        for each in (value if isinstance(value, list | tuple) else [value])
        if each
        for word in (f"--{name}", without_place(str(each)))
    ]
    if recipe is not None:
        shipped = find_recipe(recipe.name) == recipe
        arguments = [*arguments, recipe.name if shipped else without_place(str(recipe))]
    return shlex.join(["segue", verb, *arguments, *said, *map(_word_without_place, words)])


def without_place(value: Any) -> Any:
    """Of a path on this machine the last name alone, also inside lists and sections."""
    if isinstance(value, Mapping):
        return {key: without_place(each) for key, each in value.items()}
    if isinstance(value, list):
        return [without_place(each) for each in value]
    is_place = isinstance(value, str) and Path(value).is_absolute()
    return f"FOLDER/{Path(value).name}" if is_place else value


def _word_without_place(word: str) -> str:
    key, _, text = word.partition("=")
    value = yaml.safe_load(text)
    plain = without_place(value)
    if plain == value:
        return word
    if not isinstance(plain, str):
        plain = yaml.safe_dump(plain, default_flow_style=True, sort_keys=False, width=math.inf).strip()
    return f"{key}={plain}"


def check_page(page: Path | None) -> None:
    """Said before hours of training, not after."""
    if page is not None and page.exists() and not page.is_file():
        raise UserError(f"{page} is a folder: name the file to write, such as {page / 'page.md'}.")
    for place in (page.parent, page.parent / "figures") if page is not None else ():
        there = next(each for each in (place, *place.parents) if each.exists())
        if not there.is_dir() or not os.access(there, os.W_OK):
            raise UserError(f"{page} cannot be written: {there} is no folder that you may write to.")


def write_page(page: Path, text: str, display: Display) -> None:
    with atomic_file(page) as file:
        file.write(text.encode(errors="backslashreplace"))  # the name of a folder may be no text
    display.say(f"Page: {page}")


def is_done(folder: Path, recipe: RunConfig) -> bool:
    """Whether the run of this recipe is finished; a run of another recipe in its place is refused."""
    try:
        check_folder(folder, recipe, resume=True, overwrite=False)
        if recipe.method.name.endswith(".py"):  # the file may have changed since: then its checkpoints say so
            CheckpointStore(folder, identity(recipe)).resume_point(lambda _: None)
    except UserError as error:
        raise UserError(f"{error}\nFor many runs at once: name another folder with --out.") from error
    return (folder / "recipe.yaml").is_file() and read_run(folder).finished
