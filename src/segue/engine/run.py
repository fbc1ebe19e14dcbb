"""The step loop: a run from its recipe to its records. A run that was stopped goes on where it was."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from segue.core.config import MemoryConfig, RunConfig, recipe_hash
from segue.core.errors import UserError
from segue.core.metrics import step_scores
from segue.core.records import RunRecord, StepRecord, TrajectoryRecord, read_record, read_run
from segue.core.scenario import Step
from segue.data.memory import write_memory
from segue.engine.build import Data, build_data, build_method
from segue.engine.checkpoint import CheckpointStore, ResumePoint, load_strictly
from segue.engine.evaluate import evaluate, evaluate_by
from segue.engine.folder import check_folder, clear_folder, identity, locked, open_folder
from segue.engine.log import LossLog
from segue.engine.progress import Display
from segue.engine.runtime import (
    autocast,
    derive_seed,
    peak_memory,
    pick_device,
    reset_peak_memory,
    seed_all,
    versions,
)
from segue.engine.samples import choose_samples, write_inputs, write_predictions
from segue.engine.train import Session, train_step
from segue.methods.base import Method, StepContext


def run(
    config: RunConfig,
    folder: str | Path,
    resume: bool = False,
    overwrite: bool = False,
    device: str = "auto",
    display: Display | None = None,
) -> RunRecord:
    """Train and test every step of a recipe; everything lands in the run folder."""
    folder, display = Path(folder), display or Display()
    where = pick_device(device)
    check_folder(folder, config, resume, overwrite)
    data = build_data(config, display)
    store = CheckpointStore(folder, identity(config))
    seen = store.entries()
    point = ResumePoint() if overwrite else store.resume_point(display.say)
    starts = point.finished is None and point.inside is None
    if starts and resume and folder.exists():
        display.say(f"{folder} has no checkpoint to go on from: starting at the beginning.")
    method = build_method(config, where, initial_weights=starts)
    if (maps := method.saliency()) is not None:
        data = data.with_saliency(Path(maps).expanduser())
    with locked(folder):
        if store.entries() != seen:  # while this process waited for the lock
            raise UserError(f"Another process has just worked in {folder}: start the command again to go on.")
        check_folder(folder, config, resume, overwrite)
        clear_folder(folder, everything=overwrite)
        open_folder(folder, config, data.manifest())
        _check_records(folder, point.finished_step)
        _run_steps(method, data, where, folder, store, point, display)
    return read_run(folder)


def _run_steps(
    method: Method,
    data: Data,
    device: torch.device,
    folder: Path,
    store: CheckpointStore,
    point: ResumePoint,
    display: Display,
) -> None:
    """Go on from a checkpoint, or begin."""
    last = point.inside or point.finished or {}
    log = LossLog(folder / "log.jsonl", keep_bytes=last.get("log_bytes", 0))
    try:
        for step in data.scenario:
            seed_all(derive_seed(data.config.train.seed, step.index))
            method.grow(step)
            if step.index < point.finished_step:
                continue
            if step.index == point.finished_step:
                load_strictly(method, point.finished["method"], store.path(step.index))
                outcome = point.finished["outcome"]
            else:
                inside = point.inside if step.index == point.finished_step + 1 else None
                outcome = _train(method, data, step, device, folder, log, store, display, inside)
            if not (folder / "steps" / f"{step.index}.json").is_file() or step.index > point.finished_step:
                _record(method, data, step, device, folder, outcome, display)
    finally:
        log.close()


def _check_records(folder: Path, finished: int) -> None:
    """Records of finished steps are needed at the end: find out now, not after hours, if one is damaged."""
    for index in range(finished + 1):
        path = folder / "steps" / f"{index}.json"
        if index < finished or path.is_file():  # the last one can still be made from its checkpoint
            read_record(path)


def _train(
    method: Method,
    data: Data,
    step: Step,
    device: torch.device,
    folder: Path,
    log: LossLog,
    store: CheckpointStore,
    display: Display,
    inside: dict[str, Any] | None,
) -> dict[str, Any]:
    """Train one step from its beginning or from a moment inside it; returns what its record needs."""
    config = data.config
    reset_peak_memory(device)
    method.model.norm_frozen = config.train.norm == "frozen" and not step.first
    method.train()  # a run that goes on comes here from a test, a resumed one does not
    generator = torch.Generator().manual_seed(derive_seed(config.train.seed, step.index, 1))
    context = StepContext(step, data.one_pass(step.index, device), device, generator)
    with autocast(device, config.train.precision):  # as in training
        method.begin_step(context)
    session = Session.start(method, step, config.optim, config.train, device, generator)
    if inside is not None:
        session.load_state_dict(inside)
    batches = data.train_batches(step.index, device, session.iteration, _replay(method))
    watch = _watcher(method, data, step, device, folder) if config.eval.every else None
    with display.bar(_title(data, step), len(batches.plan)) as bar:
        bar.update(session.iteration)
        losses = train_step(session, step, batches, config.optim, config.train, log, store, bar, watch)
    method.end_step(context)
    outcome = {"losses": losses, "seconds": session.seconds, "peak_memory": peak_memory(device)}
    store.save_finished(
        step.index, {"method": method.state_dict(), "outcome": outcome, "log_bytes": log.size}
    )
    return outcome


def _watcher(
    method: Method, data: Data, step: Step, device: torch.device, folder: Path
) -> Callable[[int], None]:
    """Tests the method every few epochs of a step, by every strategy, and after the last one."""
    config = data.config

    def watch(epoch: int) -> None:
        if epoch % config.eval.every and epoch != config.train.epochs_of(step.index):
            return
        batches = data.test_batches(step.index, device)
        found = evaluate_by(method, method.strategies, batches, step.num_channels, config.train.precision)
        confusions = {name: tuple(map(tuple, matrix.tolist())) for name, matrix in found.items()}
        TrajectoryRecord(step.index, epoch, len(data.scenario.groups[0]), confusions).write(folder)

    return watch


def _record(
    method: Method,
    data: Data,
    step: Step,
    device: torch.device,
    folder: Path,
    outcome: dict[str, Any],
    display: Display,
) -> None:
    """Test a finished step and write its record and its pictures."""
    config, scenario = data.config, data.scenario
    began = time.monotonic()
    batches = data.test_batches(step.index, device)
    with display.bar(f"{_title(data, step)} test", len(batches.data)) as bar:
        confusion = evaluate(method, batches, step.num_channels, config.train.precision, bar)
    tested = time.monotonic() - began
    _pictures(method, data, step, device, folder)
    images = {"train": len(data.train_images[step.index]), "test": len(data.test_images[step.index])}
    if (replay := _replay(method)) is not None:
        images["memory"] = len(data.memory(step.index, replay.size))
        write_memory(folder, step.index, data.memory(step.index + 1, replay.size), data.train_set.keys)
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
        policy={"mode": scenario.mode, "void": scenario.void, "future": scenario.future},
        seed=config.train.seed,
        versions=versions(device),
        recipe_hash=recipe_hash(config),
        losses=outcome["losses"],
        seconds={"train": round(outcome["seconds"], 3), "eval": round(tested, 3)},
        peak_memory=outcome["peak_memory"],
        images=images,
        parameters={
            "trainable": sum(p.numel() for p in parameters if p.requires_grad),
            "total": sum(p.numel() for p in parameters),
        },
        offline=scenario.offline,
    ).write(folder)
    scores = step_scores(confusion, len(scenario.groups[0]))
    shown = {"old": scores.old, "new": scores.new, "all": scores.all}
    means = ", ".join(f"{name} {100 * value:.1f}" for name, value in shown.items() if not math.isnan(value))
    display.say(f"{_title(data, step)}: mIoU {means} after {outcome['seconds']:.0f} s of training")


def _replay(method: Method) -> MemoryConfig | None:
    """The memory that the method asks for; one without room is none."""
    replay = method.replay()
    return replay if replay is not None and replay.size > 0 else None


def _title(data: Data, step: Step) -> str:
    return f"{Path(data.config.method.name).stem} step {step.index}/{len(data.scenario) - 1}"


def _pictures(method: Method, data: Data, step: Step, device: torch.device, folder: Path) -> None:
    count = data.config.eval.samples
    if count == 0:
        return
    scenario = data.scenario
    chosen = choose_samples(scenario, data.test_present, data.test_images[-1], count)
    batch = data.sample_batch(chosen, device)
    if not (folder / "samples" / "index.json").is_file():
        write_inputs(folder / "samples", batch, scenario.channel_names(scenario[-1]))
    write_predictions(folder / "samples", method, batch, step.index)
