"""The step loop: a run from its recipe to its records. A run that was stopped goes on where it was."""

from __future__ import annotations

import math
import re
import shutil
import time
from pathlib import Path
from typing import Any

import torch

from segue.core.config import RunConfig, differences, recipe_hash, to_yaml
from segue.core.errors import UserError
from segue.core.metrics import step_scores
from segue.core.records import RunRecord, StepRecord, atomic_file, read_run, read_yaml, write_json
from segue.core.scenario import Step
from segue.engine.build import Data, build_data, build_method
from segue.engine.checkpoint import CheckpointStore
from segue.engine.evaluate import evaluate
from segue.engine.log import LossLog
from segue.engine.progress import Display
from segue.engine.runtime import derive_seed, peak_memory, pick_device, reset_peak_memory, seed_all, versions
from segue.engine.samples import choose_samples, write_inputs, write_predictions
from segue.engine.train import Session, train_step
from segue.methods.base import Method, StepContext

RUN_FOLDERS = ("checkpoints", "steps", "samples")
RUN_FILES = ("log.jsonl", "scenario.json", "recipe.yaml")
EARLY_FILES = re.compile(r"scenario\.json|\.(scenario\.json|recipe\.yaml)\..*\.part")
"""what a run leaves that was stopped before it had its recipe"""


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
    method = build_method(config, where)
    clear_folder(folder, everything=overwrite)
    store = CheckpointStore(folder)
    point = store.resume_point(display.say)
    if not (folder / "recipe.yaml").is_file():
        write_json(folder / "scenario.json", data.manifest())
        with atomic_file(folder / "recipe.yaml") as file:
            file.write(to_yaml(config).encode())
    last = point.inside or point.finished or {}
    log = LossLog(folder / "log.jsonl", keep_bytes=last.get("log_bytes", 0))
    try:
        for step in data.scenario:
            seed_all(derive_seed(config.train.seed, step.index))
            method.grow(step)
            if step.index < point.finished_step:
                continue
            if step.index == point.finished_step:
                method.load_state_dict(point.finished["method"], strict=True)
                outcome = point.finished["outcome"]
            else:
                inside = point.inside if step.index == point.finished_step + 1 else None
                outcome = _train(method, data, step, where, log, store, display, inside)
            if not (folder / "steps" / f"{step.index}.json").is_file() or step.index > point.finished_step:
                _record(method, data, step, where, folder, outcome, display)
    finally:
        log.close()
    return read_run(folder)


def check_folder(folder: Path, config: RunConfig, resume: bool, overwrite: bool) -> None:
    """A folder is new, or is to be overwritten, or holds a run of the very same recipe."""
    if resume and overwrite:
        raise UserError("--resume goes on, --overwrite starts anew: choose one of them.")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"The run folder {folder} is a file. Name another with --out.")
    is_run = (folder / "recipe.yaml").is_file()
    content = list(folder.iterdir()) if folder.exists() else []
    if (resume or overwrite) and not is_run and not all(EARLY_FILES.fullmatch(path.name) for path in content):
        raise UserError(f"{folder} is not a run folder: it has no recipe.yaml, but other files.")
    if resume and is_run:
        stored = read_yaml(folder / "recipe.yaml")
        lines = differences(stored, read_back(config))
        if lines:
            raise UserError(
                f"{folder} was started with another recipe (stored -> asked for):\n  "
                + "\n  ".join(lines)
                + "\nResume with the stored recipe (segue train FOLDER --resume), or start anew: --overwrite."
            )
    elif content and not (resume or overwrite):
        raise UserError(
            f"The run folder {folder} exists. Go on with --resume, start anew with --overwrite,"
            " or name another with --out."
        )


def clear_folder(folder: Path, everything: bool) -> None:
    """Remove what a killed process left half-written, or a whole run: its own files only, its recipe last."""
    try:
        for name in RUN_FOLDERS:
            for part in (folder / name).rglob(".*.part"):
                part.unlink()
            if everything and (folder / name).is_dir():
                shutil.rmtree(folder / name)
        for name in RUN_FILES:
            for part in folder.glob(f".{name}.*.part"):
                part.unlink()
            if everything:
                (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"Cannot clear {folder}: {error.strerror} ({error.filename}).") from error


def read_back(config: RunConfig) -> dict[str, Any]:
    """A recipe as it reads when it has been stored."""
    import yaml

    return yaml.safe_load(to_yaml(config))


def _train(
    method: Method,
    data: Data,
    step: Step,
    device: torch.device,
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
    context = StepContext(step, data.train_batches(step.index, device, epochs=1), device, generator)
    method.begin_step(context)
    session = Session.start(method, step, config.optim, config.train, device, generator)
    if inside is not None:
        session.load_state_dict(inside)
    batches = data.train_batches(step.index, device, start=session.iteration)
    with display.bar(_title(data, step), len(batches.plan)) as bar:
        bar.update(session.iteration)
        losses = train_step(session, step, batches, config.optim, config.train, log, store, bar)
    method.end_step(context)
    outcome = {"losses": losses, "seconds": session.seconds, "peak_memory": peak_memory(device)}
    store.save_finished(
        step.index, {"method": method.state_dict(), "outcome": outcome, "log_bytes": log.size}
    )
    return outcome


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
        images={"train": len(data.train_images[step.index]), "test": len(data.test_images[step.index])},
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


def _title(data: Data, step: Step) -> str:
    return f"{Path(data.config.method.name).stem} step {step.index + 1}/{len(data.scenario)}"


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


def default_folder(config: RunConfig) -> Path:
    """runs/METHOD-DATASET-SPLIT-MODE-SEED"""
    scenario = config.scenario
    split = scenario.split if isinstance(scenario.split, str) else "custom"
    words = [Path(config.method.name).stem, scenario.dataset, split, scenario.mode, f"s{config.train.seed}"]
    name = "-".join("".join(c if c.isalnum() or c in "-_+" else "+" for c in word) for word in words)
    return Path("runs") / name
