"""A finished step tested: its record, its pictures, and its course over the epochs."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

import segue
from segue.core.config import ModelConfig, RunConfig, recipe_hash
from segue.core.declaration import replay_memory
from segue.core.image_counts import ImageCounts, digest
from segue.core.metrics import step_scores
from segue.core.records import StepRecord, TrajectoryRecord
from segue.core.scenario import Step
from segue.data.exemplars import write_exemplars
from segue.engine.data import Data
from segue.engine.evaluate import evaluate, evaluate_by
from segue.engine.image_tally import ImageTally
from segue.engine.log import RunLog
from segue.engine.samples import choose_samples, write_inputs, write_predictions
from segue.engine.site import Site
from segue.methods.base import Method

LIBRARIES = {"smp": "segmentation_models_pytorch", "hf": "transformers"}
"""packages of networks from elsewhere, by the name of their family"""


def watcher(method: Method, data: Data, step: Step, site: Site) -> Callable[[int], None]:
    """Tests the method every few epochs of a step, by every strategy, and after the last one."""
    config = data.config

    def watch(epoch: int) -> None:
        if epoch % config.eval.every and epoch != config.train.epochs_of(step.index):
            return
        site.group.broadcast_norm(method)
        batches = data.test_batches(step.index, site.device)
        strategies = tuple(method.predictors())
        how = (config.train.precision, None, config.eval.closed)
        matrices = evaluate_by(method, strategies, batches, step.num_channels, *how)
        confusions = {name: tuple(map(tuple, matrix.tolist())) for name, matrix in matrices.items()}
        if site.group.first:
            record = TrajectoryRecord(step.index, epoch, len(data.scenario.groups[0]), confusions)
            record.write(site.folder)

    return watch


def record_step(
    method: Method, data: Data, step: Step, site: Site, outcome: dict[str, Any], log: RunLog | None = None
) -> None:
    """Test a finished step and write its record and its pictures."""
    began = time.monotonic()
    batches, tally = data.test_batches(step.index, site.device), None
    if step.index == len(data.scenario) - 1:  # what methods are compared by
        tally = ImageTally(len(batches.data), step.num_channels, site.device)
    with site.display.bar(f"{step_title(data, step)} test", len(batches.data)) as bar:
        precision, closed = data.config.train.precision, data.config.eval.closed
        confusion = evaluate(method, batches, step.num_channels, precision, bar, closed, tally)
    counts = None if tally is None else tally.total().numpy()
    seconds = {"train": round(outcome["seconds"], 3), "eval": round(time.monotonic() - began, 3)}
    if site.group.first:
        _pictures(method, data, step, site)
        if counts is not None:
            keys = [data.test_set.keys[image] for image in data.test_images[step.index]]
            ImageCounts(counts, digest(keys)).write(site.folder, step.index)
        _write_record(method, data, step, site, outcome, confusion, seconds)
        scores = _mean_ious(confusion, data)
        if log is not None:
            log.scores(step.index, scores)
        means = ", ".join(f"{name} {100 * value:.1f}" for name, value in scores.items())
        site.display.say(
            f"{step_title(data, step)}: mIoU {means} after {outcome['seconds']:.0f} s of training"
        )


def _mean_ious(confusion: np.ndarray, data: Data) -> dict[str, float]:
    """Mean IoU of old, new and all classes, as far as there are such."""
    scores = step_scores(confusion, len(data.scenario.groups[0]))
    means = {"old": scores.old, "new": scores.new, "all": scores.all}
    return {name: value for name, value in means.items() if not math.isnan(value)}


def _write_record(
    method: Method,
    data: Data,
    step: Step,
    site: Site,
    outcome: dict[str, Any],
    confusion: np.ndarray,
    seconds: dict[str, float],
) -> None:
    config, scenario, folder = data.config, data.scenario, site.folder
    images = {"train": len(data.train_keys[step.index]), "test": len(data.test_images[step.index])}
    if (replay := replay_memory(config.method.params)) is not None:
        before = data.exemplars(step.index, replay.size)
        images["memory"] = len(before)
        kept = data.exemplars_after(step.index, before, replay.size)
        write_exemplars(folder, step.index, kept, data.train_set.keys)
    if data.kept is not None:
        images["kept"] = len(data.kept.images)
    names = scenario.classes.names
    parameters = list(method.model.parameters())
    StepRecord(
        run=folder.name,
        method=config.method.name,
        dataset=config.scenario.dataset,
        step=step.index,
        classes=scenario.channel_names(step),
        groups=tuple(tuple(names[class_id] for class_id in group) for group in scenario.groups),
        confusion=tuple(tuple(row) for row in confusion.tolist()),
        policy={
            "mode": scenario.mode,
            "void": scenario.void,
            "future": scenario.future,
            **tested_policy(config),
        },
        seed=config.train.seed,
        versions=versions(site.device, site.group.size, config.model),
        recipe_hash=recipe_hash(config),
        losses=outcome["losses"],
        seconds=seconds,
        peak_memory=outcome["peak_memory"],
        images=images,
        parameters={
            "trainable": sum(p.numel() for p in parameters if p.requires_grad),
            "total": sum(p.numel() for p in parameters),
        },
        offline=scenario.offline,
        shown=_shown(data, step),
        kept=None if scenario.offline else sum(value.nbytes for value in _own_state(method)),
    ).write(folder)


def _own_state(method: Method) -> list[torch.Tensor]:
    """What a method takes along beside its model; a teacher is the model of the step before, not counted."""
    state = method.state_dict().items()
    return [value for name, value in state if torch.is_tensor(value) and not name.startswith("model.")]


def _shown(data: Data, step: Step) -> dict[str, int]:
    """Training images that show each new class; of a step whose images are partly gone nobody knows."""
    images = data.train_images[step.index]
    if len(images) < len(data.train_keys[step.index]):
        return {}
    present, names = data.train_present[images], data.scenario.classes.names
    return {names[class_id]: int(present[:, class_id].sum()) for class_id in step.new}


def tested_policy(config: RunConfig) -> dict[str, str]:
    """What was tested in another way than usual: such scores cannot stand beside others."""
    tested = []
    if config.scenario.hold_out:
        tested.append(f"held-out {config.scenario.hold_out:g} of the training images")
    if config.eval.thin > 1:
        tested.append(f"one of every {config.eval.thin} images")
    if config.eval.size != "crop":
        whole = config.eval.size == "own"
        tested.append("whole images" if whole else f"shorter side of {config.eval.size} pixels")
    policy = {"tested": ", ".join(tested)} if tested else {}
    if config.eval.between > 1:
        policy["between"] = f"one of every {config.eval.between} images in steps before the last"
    if config.eval.closed:
        policy["background"] = "closed"
    return policy


def step_title(data: Data, step: Step) -> str:
    return f"{Path(data.config.method.name).stem} step {step.index}/{len(data.scenario) - 1}"


def _pictures(method: Method, data: Data, step: Step, site: Site) -> None:
    count = data.config.eval.samples
    if count == 0:
        return
    scenario = data.scenario
    chosen = choose_samples(scenario, data.test_present, data.test_images[-1], count)
    batches, folder = list(data.sample_batches(chosen, site.device)), site.folder / "samples"
    if not (folder / "index.json").is_file():
        write_inputs(folder, batches, scenario)
    write_predictions(folder, method, batches, step.index, data.config.eval.closed)


def versions(device: torch.device, processes: int = 1, model: ModelConfig | None = None) -> dict[str, str]:
    """What computed a record: packages, device, threads and processes.

    `model` tells the library of a network from elsewhere.
    """
    network = model.network if model is not None else None
    library = LIBRARIES.get((network or {}).get("source", {}).get("kind", ""))
    return {
        "segue": segue.__version__,
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "torchvision", "timm", "numpy")},
        **({library: version(library)} if library is not None else {}),
        "device": torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else f"{device.type} {platform.machine()}",
        "threads": str(torch.get_num_threads()),
        **({"processes": str(processes)} if processes > 1 else {}),
    }
