"""Which images trained the finished steps: a run folder tells it, so that they are not asked for again."""

from __future__ import annotations

from pathlib import Path

from segue.core.config import RunConfig, as_dict
from segue.core.declaration import replay_memory
from segue.core.manifest import read_manifest
from segue.core.records import is_run
from segue.engine.build import build_scenario, open_set
from segue.engine.checkpoint import CheckpointStore, ResumePoint
from segue.engine.images import chosen_by_name
from segue.engine.recipe import stored_recipe


def stored_images(folder: Path, config: RunConfig, point: ResumePoint, start: Path | None) -> list[list[str]]:
    """The images of all steps of a run that goes on, or of step 0 of the run that it starts from.

    Empty where the images have to be found: at the beginning, or for a method that replays old images.
    """
    if replay_memory(config.method.params) is not None:
        return []
    if point.at_start:
        return [] if start is None else start_images(start, config)
    path = folder / "scenario.json"
    return [step["train"] for step in read_manifest(path)["steps"]] if path.is_file() else []


def nothing_left(folder: Path, config: RunConfig, point: ResumePoint) -> bool:
    """Whether all steps of a run are trained and recorded."""
    path = folder / "scenario.json"
    if point.finished is None or not path.is_file() or not is_run(folder):
        return False
    steps = len(read_manifest(path)["steps"])
    records = (folder / "steps" / f"{index}.json" for index in range(config.scenario.learned, steps))
    return point.finished_step + 1 == steps and all(record.is_file() for record in records)


def finished_images(folder: Path, config: RunConfig) -> tuple[list[list[str]], int]:
    """The images of all steps of a run, as far as it tells them, and how many of its steps are trained."""
    trained = [entry.step for entry in CheckpointStore(folder).entries() if entry.finished]
    if not trained:
        return [], 0
    return stored_images(folder, config, ResumePoint(max(trained), {}), None), max(trained) + 1


def start_images(start: Path, config: RunConfig) -> list[list[str]]:
    """The images of step 0: those of a manifest, or the other run's if the same rule has chosen them."""
    theirs = stored_recipe(start)
    scenario, listed = build_scenario(config, open_set(config, "train"))
    if listed is not None:
        held_out = chosen_by_name(listed[0], config.scenario.hold_out)
        return [[key for key, held in zip(listed[0], held_out, strict=True) if not held]]
    first = read_manifest(start / "scenario.json")["steps"][0]
    classes = [scenario.classes.names[class_id] for class_id in scenario[0].new]
    divided = config.scenario.mode == "divided"  # then all images decide which are those of step 0
    return (
        [first["train"]] if not divided and _rule(theirs) == _rule(config) and first["new"] == classes else []
    )


def _rule(config: RunConfig) -> list[object]:
    """What chooses the images of step 0 among those of a place."""
    wanted, data = config.scenario, as_dict(config)["data"]
    data.pop("root", None)
    return [wanted.dataset, wanted.mode, wanted.hold_out, wanted.manifest, data]
