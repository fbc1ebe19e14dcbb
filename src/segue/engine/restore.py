"""A trained run brought back: its method with the weights of a finished step, and its data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from segue.core.classes import ClassTable
from segue.core.config import RunConfig, read_back
from segue.core.errors import UserError
from segue.core.manifest import from_manifest, read_manifest
from segue.core.overrides import differences
from segue.core.progress import Display
from segue.core.records import RunRecord, read_record, read_run
from segue.core.scenario import Step
from segue.data.batches import lost_worker_is_told
from segue.engine.build import build_method
from segue.engine.checkpoint import CheckpointStore, load_finished, load_strictly
from segue.engine.data import build_eval_data
from segue.engine.device import full_device_is_told, pick_device
from segue.engine.evaluate import evaluate_by
from segue.engine.frozen_cache import with_test_maps
from segue.engine.recipe import complete, stored_recipe
from segue.methods.base import Method


def restore_method(
    config: RunConfig,
    folder: Path,
    steps: Sequence[Step],
    device: torch.device,
    strategies: Sequence[str] = (),
    module: nn.Module | None = None,
) -> Method:
    """Grow through the given steps and load the weights after the last of them.

    Strategies other than the usual one may need the teacher: else there is none. `module` is the user's own,
    for a recipe that cannot build the network.
    """
    method = build_method(config, device, initial_weights=False, module=module)
    for step in steps[:-1]:
        method.pass_through(step)
    if len(steps) > 1 and set(strategies) - {next(iter(method.predictors()))}:
        _load(method, folder, steps[-2])
        method.grow(steps[-1])
    else:
        method.pass_through(steps[-1])
    _load(method, folder, steps[-1])
    return method.eval()


@dataclass(frozen=True)
class Restored:
    """A method after a finished step, without its data."""

    method: Method
    config: RunConfig
    classes: tuple[str, ...]
    """names of the channels, background first"""
    steps: tuple[tuple[str, ...], ...]
    """names of the classes that each step brought"""
    record: RunRecord
    """the run, as its folder tells of it"""


def restore_step(
    folder: str | Path, step_index: int | None = None, module: nn.Module | None = None
) -> Restored:
    """The method of a run after a finished step; the data are not needed."""
    folder = Path(folder)
    record, document = read_run(folder), read_manifest(folder / "scenario.json")
    config = complete(record.recipe)
    names = dict(enumerate((name for group in document["groups"] for name in group), start=1))
    table = ClassTable(document["dataset"], names)  # a recipe may name a file of one's own instead
    scenario, _ = from_manifest(document, table, str(folder / "scenario.json"))
    step_index = _chosen_step(folder, step_index, len(scenario))
    method = restore_method(config, folder, scenario[: step_index + 1], torch.device("cpu"), module=module)
    steps = tuple(tuple(names[class_id] for class_id in step.new) for step in scenario[: step_index + 1])
    return Restored(method, config, scenario.channel_names(scenario[step_index]), steps, record)


def _chosen_step(folder: Path, step: int | None, count: int) -> int:
    """The step asked for, or the last finished one."""
    if step is None:
        finished = [entry.step for entry in CheckpointStore(folder).entries() if entry.finished]
        if not finished:
            raise UserError(f"{folder} has no finished step yet, or its checkpoints are gone.")
        return finished[-1]
    if not 0 <= step < count:
        raise UserError(f"There is no step {step}: the scenario has steps 0 to {count - 1}.")
    return step


def _load(method: Method, folder: Path, step: Step) -> None:
    path = CheckpointStore(folder).path(step.index)
    if not path.exists():
        kept = [entry.step for entry in CheckpointStore(folder).entries() if entry.finished]
        raise UserError(f"{folder} keeps no checkpoint of step {step.index}; kept: {kept or 'none'}.")
    load_strictly(method, load_finished(path)["method"], path)


def evaluate_run(
    folder: str | Path,
    step_index: int | None = None,
    overrides: Sequence[str] = (),
    device: str = "auto",
    display: Display | None = None,
    strategies: Sequence[str] | None = None,
) -> tuple[dict[str, np.ndarray], tuple[str, ...], int]:
    """Test a finished step anew: a confusion matrix per strategy (None: that of `predict` alone), the channel
    names and the number of classes of step 0."""
    folder, display = Path(folder), display or Display()
    config = stored_recipe(folder, overrides)
    for line in differences(read_back(stored_recipe(folder)), read_back(config)):
        if line.split(".")[0] in ("scenario", "model", "method"):
            raise UserError(
                f"A trained run is tested as it was trained; only data and train may differ ({line})."
            )
    data, where = build_eval_data(config, display), pick_device(device)
    step_index = _chosen_step(folder, step_index, len(data.scenario))
    step = data.scenario[step_index]
    if (record := folder / "steps" / f"{step_index}.json").is_file():
        trained, found = read_record(record).classes, data.scenario.channel_names(step)
        if trained != found:
            raise UserError(
                f"The run was trained for {', '.join(trained)}; the data have {', '.join(found)}."
            )
    steps = data.scenario[: step_index + 1]
    method = restore_method(config, folder, steps, where, strategies or ())
    known = tuple(method.predictors())
    chosen = strategies or known[:1]
    if unknown := [name for name in chosen if name not in known]:
        raise UserError(
            f"{config.method.name} cannot predict by '{unknown[0]}' at step {step_index};"
            f" it can by: {', '.join(known)}."
        )
    if not len(data.test_images[step_index]):
        raise UserError(
            f"No test image shows a class that is known at step {step_index}: is data.root right?"
        )
    batches = with_test_maps(data, method, display).test_batches(step_index, where)
    title = f"{config.method.name} step {step_index} test"
    with lost_worker_is_told(), full_device_is_told(), display.bar(title, len(batches.data)) as bar:
        precision, closed = config.train.precision, config.eval.closed
        found = evaluate_by(method, chosen, batches, step.num_channels, precision, bar, closed)
    return found, data.scenario.channel_names(step), len(data.scenario.groups[0])
