"""Which runs of a study can share a step 0, so that it is trained once."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from typing import Any

from segue.core import plugins
from segue.core.config import RunConfig, as_dict
from segue.core.declaration import replay_memory
from segue.core.errors import UserError
from segue.core.manifest import read_manifest
from segue.core.progress import Display
from segue.core.records import read_yaml
from segue.engine.data import build_data
from segue.engine.start import FirstStep, can_be_taken, first_step, has_first_step, stored_first_step
from segue.engine.trained import finished_images, start_images
from segue.studies.jobs import Job


class Manifests:
    """The images of a recipe's steps; the data is read once for all recipes that mean the same images.

    Of trained steps images may be gone: then they are those that a run tells. If there are others than it
    tells, the data have changed, and what is there now counts.
    """

    def __init__(self, display: Display) -> None:
        self.display, self.found = display, dict[str, dict[str, Any]]()
        self.first_images = dict[Path, list[str]]()

    def __call__(
        self, recipe: RunConfig, place: Path, donors: Mapping[Path, FirstStep] | None = None
    ) -> dict[str, Any]:
        """The images of a recipe that is carried out at a place; `donors` may give it their step 0."""
        found, problem = None, None
        try:
            found = self._read(recipe)
        except UserError as error:
            problem = error
        images, trained = finished_images(place, recipe)
        if images and (found is None or _some_are_gone(found, images[:trained])):
            return self._read(recipe, images, trained)
        if replay_memory(recipe.method.params) is None:
            for donor, theirs in (donors or {}).items():
                if found is not None and not _some_are_gone(found, [self._first_images(donor)]):
                    continue
                given = start_images(donor, recipe)
                if given and first_step(recipe, told := self._read(recipe, given, 1)).can_start_from(theirs):
                    return told
        if problem is not None:
            raise problem
        assert found is not None
        return found

    def _first_images(self, folder: Path) -> list[str]:
        if folder not in self.first_images:
            self.first_images[folder] = read_manifest(folder / "scenario.json")["steps"][0]["train"]
        return self.first_images[folder]

    def _read(
        self, recipe: RunConfig, images: Sequence[Sequence[str]] = (), trained: int = 0
    ) -> dict[str, Any]:
        plain = as_dict(recipe)
        offline = plugins.declared(recipe.method.name).offline
        batches = plain["train"] | {"seed": None}  # of methods whose batches differ, each may be too small
        key = json.dumps([plain["scenario"], plain["data"], plain["eval"], batches, offline, images, trained])
        if key not in self.found:
            data = build_data(recipe, self.display, first_step=trained, stored=images)
            self.found[key] = data.manifest()
        return self.found[key]


def _some_are_gone(found: Mapping[str, Any], told: Sequence[Sequence[str]]) -> bool:
    """Whether trained steps have lost images, and have no others instead."""
    pairs = [(set(step["train"]), set(names)) for step, names in zip(found["steps"], told, strict=False)]
    return all(now <= then for now, then in pairs) and any(now < then for now, then in pairs)


def jobs_sharing_first_steps(
    missing: Mapping[Path, RunConfig], out: Path, manifest_of: Manifests
) -> list[Job]:
    """Jobs for these runs, each with a run whose step 0 it can take: one under `out`, or one of the others.

    Reads the data of every run, so that bad data or a bad split is said before anything is trained.
    """
    donors = runs_with_first_step(out, {recipe.method.name for recipe in missing.values()})
    wanted = {
        place: first_step(recipe, manifest_of(recipe, place, donors)) for place, recipe in missing.items()
    }
    sound = functools.cache(can_be_taken)
    starts = shared_first_steps(wanted, donors, lambda donor: donor in missing or sound(donor))
    return [Job(missing[place], place, resume=True, start=start) for place, start in starts.items()]


def shared_first_steps(
    wanted: Mapping[Path, FirstStep], there: Mapping[Path, FirstStep], usable: Callable[[Path], bool]
) -> dict[Path, Path | None]:
    """For each run the one whose step 0 it takes, None where it trains its own; in the order to start them.

    Takes a step 0 that is `there` already, or that of another run in `wanted`.
    """
    # in each folder first those that gather state: others can start from them, but not the other way round
    folders = list(dict.fromkeys(place.parent for place in wanted))
    takers = {each.hash for each in wanted.values() if each.gathered is None}
    gives = {place: each.gathered is not None and each.hash in takers for place, each in wanted.items()}
    donors, starts = dict(there), dict[Path, Path | None]()
    for place in sorted(wanted, key=lambda x: (folders.index(x.parent), not gives[x])):
        fitting = (
            donor
            for donor, theirs in donors.items()
            if wanted[place].can_start_from(theirs)
            and wanted[place].has_pictures_of(theirs)
            and usable(donor)
        )
        start = next(fitting, None)
        donors.setdefault(place, wanted[place])
        starts[place] = start if start != place else None
    return starts


def runs_with_first_step(out: Path, methods: Container[str]) -> dict[Path, FirstStep]:
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
