"""Runs that are done already, found by what they are: the same recipe counts, wherever the folder lies."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from segue.core import plugins
from segue.core.config import RunConfig, as_dict
from segue.core.errors import UserError
from segue.core.neutral import MAY_CHANGE, drop
from segue.core.overrides import differences
from segue.core.packed import STUDY_FILE, packed_places
from segue.core.records import RunRecord, read_recipe, read_run
from segue.engine.recipe import complete

MOST_KEYS = 3
"""settings that are named where runs differ in more"""
Key = tuple[Any, ...]


@dataclass
class StoredRuns:
    """The run folders below some folders, by data set, split, mode, method and seed."""

    places: dict[Key, list[Path]] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)
    """folders that look like runs and cannot be read, with the reason"""
    others: dict[str, list[Path]] = field(default_factory=dict)
    """runs of another protocol that were looked at and left out, by what differs (stored -> wanted)"""
    taken: set[Path] = field(default_factory=set)
    """runs that serve some recipe: of these nothing has to be said"""
    _recipes: dict[Path, dict[str, Any]] = field(default_factory=dict)

    def match(self, recipe: RunConfig, name: str) -> RunRecord | None:
        """The finished run of this recipe; of several the first.

        Others of the same method are noted: runs of another protocol. A run of another `name` that differs in
        the method's settings alone is another row, not another protocol.
        """
        offline = plugins.declared(recipe.method.name).offline
        wanted = _comparable(recipe, offline)
        for place in self.places.get(_key(wanted, offline), []):
            lines = differences(self._stored(place, offline), wanted)
            if lines:
                if place.name == name or not all(line.startswith("method.") for line in lines):
                    self._leave_out(place, lines)
                continue
            run = read_run(place)
            if run.finished:
                self.taken.add(place)
                return run
        return None

    def _stored(self, place: Path, offline: bool) -> dict[str, Any]:
        if place not in self._recipes:
            config = complete(read_recipe(place))  # it may be older than some settings
            self._recipes[place] = _comparable(config, offline)
        return self._recipes[place]

    def _leave_out(self, place: Path, lines: list[str]) -> None:
        more = f" and {len(lines) - MOST_KEYS} more" if len(lines) > MOST_KEYS else ""
        text = "; ".join(lines[:MOST_KEYS]) + more
        if place not in (known := self.others.setdefault(text, [])):
            known.append(place)

    @property
    def notes(self) -> list[str]:
        """A sentence for each way in which runs were of another protocol."""
        found = [f"{text}." for text in self.unreadable]
        for text, left_out in self.others.items():
            places = [place for place in left_out if place not in self.taken]
            if not places:
                continue
            what = f"{len(places)} runs" if len(places) > 1 else "1 run"
            found.append(
                f"Left out: {what} of another protocol in {_common(places)} (stored -> wanted: {text})."
            )
        return found


def find_runs(folders: Iterable[Path]) -> StoredRuns:
    """All runs below these folders, packed ones too; links are not followed."""
    found = StoredRuns()
    for folder in folders:
        for place in _run_folders(folder):
            try:
                recipe = read_recipe(place)
                offline = _is_offline(recipe)
                found.places.setdefault(_key(recipe, offline), []).append(place)
            except (UserError, KeyError, TypeError, AttributeError) as error:
                found.unreadable.append(f"{place} is left out, its recipe cannot be read: {error}")
    return found


def _run_folders(folder: Path) -> Iterator[Path]:
    for place, inside, files in os.walk(folder):
        inside.sort()
        if "recipe.yaml" in files:
            inside.clear()  # a run holds no other
            yield Path(place)
        elif STUDY_FILE in files:
            packed = packed_places(Path(place) / STUDY_FILE)
            yield from (each for each in packed if not (each / "recipe.yaml").is_file())


def _is_offline(recipe: Mapping[str, Any]) -> bool:
    name = str(recipe["method"]["name"])
    return name in plugins.names("method") and plugins.declared(name).offline


def _key(recipe: Mapping[str, Any], offline: bool) -> Key:
    scenario = recipe["scenario"]
    steps = () if offline else (str(scenario["split"]), scenario["mode"])
    return (scenario["dataset"], *steps, str(recipe["method"]["name"]), recipe["train"]["seed"])


def _comparable(config: RunConfig, offline: bool) -> dict[str, Any]:
    """A recipe without what does not alter the numbers; of weights the file's name.

    Joint is trained on all classes at once, so that split and mode do not matter to it.
    """
    recipe: dict[str, Any] = json.loads(json.dumps(as_dict(config)))
    drop(recipe, MAY_CHANGE)
    if recipe["model"].get("weights"):
        recipe["model"]["weights"] = Path(recipe["model"]["weights"]).name
    if offline:
        recipe["scenario"] = recipe["scenario"] | {"split": None, "mode": None}
    return recipe


def _common(places: list[Path]) -> str:
    return str(Path(os.path.commonpath([place.parent for place in places])))
