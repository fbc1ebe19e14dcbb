"""The step loop: a run from its recipe to its records. A run that was stopped goes on where it was."""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from segue.core.config import RunConfig
from segue.core.declaration import replay_memory, saliency_folder
from segue.core.errors import UserError
from segue.core.progress import Display
from segue.core.records import RunRecord, read_record, read_run
from segue.core.scenario import Step
from segue.data.batches import lost_worker_is_told
from segue.engine.build import build_method
from segue.engine.cautions import cautions, emulates_bf16
from segue.engine.checkpoint import CheckpointStore, ResumePoint, load_strictly
from segue.engine.data import Data, build_data
from segue.engine.device import autocast, full_device_is_told, peak_memory, reset_peak_memory
from segue.engine.folder import (
    after_restart,
    check_folder,
    identity,
    locked,
    note_launch,
    open_folder,
)
from segue.engine.frozen_cache import with_frozen_maps, with_test_maps
from segue.engine.interrupt import interrupts
from segue.engine.learned import Learned, begin_with, set_teacher
from segue.engine.log import RunLog
from segue.engine.own_files import clear_folder
from segue.engine.processes import Group, joined
from segue.engine.record import record_step, step_title, watcher
from segue.engine.seeds import derive_seed, seed_all, seed_iteration
from segue.engine.similar_start import start_from_similar
from segue.engine.site import Site
from segue.engine.start import read_start, take_over, weights_content
from segue.engine.track import check_tracker, open_tracker
from segue.engine.train import Session, train_step
from segue.engine.trained import nothing_left, stored_images
from segue.engine.weight_fusion import fuse_weights, new_share, weights_of
from segue.methods.base import Method, StepContext

RESUME = " What was saved is there: go on with --resume."


def run(
    config: RunConfig,
    folder: str | Path,
    resume: bool = False,
    overwrite: bool = False,
    device: str = "auto",
    display: Display | None = None,
    start: Path | None = None,
    learned: Learned | None = None,
) -> RunRecord | None:
    """Train and test every step of a recipe; everything lands in the run folder.

    With `start`, another run's folder, step 0 is taken from there instead of being trained. With `learned`
    the run begins after the first `scenario.learned` steps, with a model that has learned them. Of several
    processes the first alone reads and writes that folder; the others return None.

    Examples:
        >>> import segue
        >>> words = ["data.train=20", "data.test=6", "data.size=32", "train.crop=32", "train.epochs=1"]
        >>> recipe = segue.resolve("finetune", "scenes", "8-1", overrides=words)
        >>> record = segue.run(recipe, "runs/second")
        >>> [step.classes[-1] for step in record.steps]
        ['checked square', 'checked triangle']
    """
    check_tracker(config.train.track)
    folder = _named(folder)
    with joined(device, config.train.patience) as group, lost_worker_is_told(), full_device_is_told(RESUME):
        display = (display or Display()) if group.first else Display(quiet=True)
        store = CheckpointStore(folder, identity(config))
        with interrupts(display if group.first else None) as stops, _alone_in(folder, group):
            site = Site(folder, store, group, display, stops)
            if group.first:
                resume, overwrite = after_restart(folder, resume, overwrite)
                check_folder(folder, config, resume, overwrite)
            point = _resume_point(site, resume, overwrite)
            if group.any(group.first and nothing_left(folder, config, point)):
                if group.first:
                    clear_folder(folder, everything=False)
                return read_run(folder) if group.first else None
            data, method = _build(config, site, point, start, learned)
            manifest = _same_manifest(data, group)
            if point.at_start:
                images, published, slow = (
                    len(data.train_set),
                    data.train_set.published,
                    emulates_bf16(site.device),
                )
                for remark in cautions(config, images, published, slow):
                    display.say(remark)
            if start is not None:
                point = _from_start(start, config, manifest, site, point)
            if config.scenario.learned and learned is None and point.at_start:
                raise UserError("The recipe begins with a model: segue extend MODEL DATA.")
            begin = _pass_steps(method, data, site, point, learned)
            if group.first:
                clear_folder(folder, everything=overwrite)
                note_launch(folder)
                open_folder(folder, config, manifest)
                _check_records(folder, config.scenario.learned, point.finished_step)
            _run_steps(method, data, site, point, learned, begin)
        return read_run(folder) if group.first else None


def _alone_in(folder: Path, group: Group) -> AbstractContextManager[None]:
    """The first process works in the run folder, and no process of another run."""
    return locked(folder) if group.first else nullcontext()


def _named(folder: str | Path) -> Path:
    if not str(folder):
        raise UserError("The run folder has no name: an empty one would be the current folder.")
    return Path(folder)


def _resume_point(site: Site, resume: bool, overwrite: bool) -> ResumePoint:
    """Where the first process can go on, for all: others may not see its disk, or not yet what is new."""
    point = ResumePoint()
    if site.group.first and not overwrite:
        point = site.store.resume_point(site.display.say)
        if resume and point.at_start and (site.folder / "recipe.yaml").exists():
            site.display.say(f"{site.folder} has no checkpoint to go on from: starting at the beginning.")
    return ResumePoint(**site.group.broadcast(vars(point)))


def _build(
    config: RunConfig, site: Site, point: ResumePoint, start: Path | None, learned: Learned | None
) -> tuple[Data, Method]:
    """Data and method, checked before anything is trained or written."""
    group, first_step = site.group, point.finished_step + 1
    stored = group.broadcast(stored_images(site.folder, config, point, start) if group.first else None)
    if start is not None and point.at_start and stored:
        first_step = 1
    with group.node_first():
        data = build_data(config, site.display, group, first_step, stored)
    with group.node_first():
        untrained = point.at_start and not config.scenario.learned
        module = learned.module if learned is not None else None
        method = build_method(config, site.device, initial_weights=untrained, module=module)
    if (maps := saliency_folder(config.method.params)) is not None:
        data = data.with_saliency(maps, first_step)
    return data, method


def _from_start(
    start: Path, config: RunConfig, manifest: dict[str, Any], site: Site, point: ResumePoint
) -> ResumePoint:
    """Begin with step 0 of another run, unless this one has gone beyond its beginning."""
    if not point.at_start:
        site.display.say(f"{site.folder} goes on from its own checkpoint: {start} is not needed.")
        return point
    checkpoint = read_start(start, config, manifest) if site.group.first else None
    site.display.say(f"Step 0 is that of {start}.")
    return replace(point, start=site.group.broadcast(checkpoint))


def _same_manifest(data: Data, group: Group) -> dict[str, Any]:
    """The manifest, if all processes have found the same images."""
    manifest = data.manifest()
    if group.broadcast(manifest["hash"]) != manifest["hash"]:
        raise UserError(
            f"Process {group.rank} on {platform.node()} finds other training images than the first process:"
            " all nodes need the same data."
        )
    return manifest


def _pass_steps(method: Method, data: Data, site: Site, point: ResumePoint, learned: Learned | None) -> int:
    """Grow through the steps that are finished or learned, and load the weights after the last of them.

    Returns the first step that is left. A model that the method cannot go on with is refused here, before
    anything is written.
    """
    first = data.config.scenario.learned
    begin = max(point.finished_step + 1, first)
    for step in data.scenario[:begin]:
        # only first weights are drawn, and then replaced: no need to seed all generators for many such steps
        seed_iteration(site.device, derive_seed(data.config.train.seed, step.index))
        method.pass_through(step)
        if step.index == first:
            set_teacher(method, learned)
    if point.finished is not None:
        load_strictly(method, point.finished["method"], site.store.path(point.finished_step))
    elif first:
        assert learned is not None
        if untold := begin_with(method, learned):
            site.display.remark(
                f"{learned.source} does not hold all that {type(method).__name__} keeps between steps:"
                f" it begins anew with {len(untold)} tensors, such as {untold[0]}."
            )
    return begin


def _run_steps(
    method: Method, data: Data, site: Site, point: ResumePoint, learned: Learned | None, begin: int
) -> None:
    """The steps from `begin` on; the method has passed through those before."""
    first, finished = data.config.scenario.learned, point.finished_step
    data = with_test_maps(data, method, site.display)
    log = _open_log(data.config, site, point) if site.group.first else None
    try:
        if finished < first - 1 and site.group.first:  # what was learned, as a step: it can be resumed
            site.store.save_step(first - 1, method, {"losses": {}, "seconds": 0.0, "peak_memory": 0})
        if point.finished is not None and finished >= first:
            record = site.folder / "steps" / f"{finished}.json"
            if site.group.any(site.group.first and not record.is_file()):
                record_step(method, data, data.scenario[finished], site, point.finished["outcome"], log)
        for step in data.scenario[begin:]:
            seed_all(derive_seed(data.config.train.seed, step.index))
            before = weights_of(method.model) if new_share(data.config.method.fuse, step) < 1 else None
            method.grow(step)
            if step.index == first:
                set_teacher(method, learned)
            if step.first and point.start is not None:
                outcome = _take_over(method, data, step, site, point.start)
            else:
                inside = point.inside if step.index == finished + 1 else None
                outcome = _train(method, data, step, site, log, inside, before)
            record_step(method, data, step, site, outcome, log)
    finally:
        if log is not None:
            log.close()


def _open_log(config: RunConfig, site: Site, point: ResumePoint) -> RunLog:
    last = point.inside or point.finished or {}
    return RunLog(site.folder, last.get("log_bytes", 0), open_tracker(config, site.folder))


def _check_records(folder: Path, first: int, finished: int) -> None:
    """Records of finished steps are needed at the end: find out now, not after hours, if one is damaged."""
    for index in range(first, finished + 1):
        path = folder / "steps" / f"{index}.json"
        if index < finished or path.is_file():  # the last one can still be made from its checkpoint
            read_record(path)


def _train(
    method: Method,
    data: Data,
    step: Step,
    site: Site,
    log: RunLog | None,
    inside: dict[str, Any] | None,
    before: Mapping[str, Tensor] | None,
) -> dict[str, Any]:
    """Train one step from its beginning or from a moment inside it; returns what its record needs.

    `before`: the weights that the step began with, to be averaged with those that it ends with.
    """
    config, device, group = data.config, site.device, site.group
    reset_peak_memory(device)
    method.model.norm_frozen = config.train.norm == "frozen" and not step.first
    method.train()  # a run that goes on comes here from a test, a resumed one does not
    context, began = _context(data, step, device), time.monotonic()
    if config.method.start == "similar" and not step.first and inside is None:
        room = config.train.cache_gb * 1e9
        start_from_similar(method, context, config.optim, config.method.start_epochs, room)
    with autocast(device, config.train.precision):  # as in training
        method.begin_step(context)
    aside = time.monotonic() - began
    losses: dict[str, float] = {}
    spent, weights = 0.0, None
    if method.trains(step):
        session = Session.start(method, step, config.optim, config.train, device, context.generator, group)
        session.weights = weights_content(config) if step.first else None
        if inside is not None:
            session.load_state_dict(inside)
        losses = _iterate(session, data, step, site, log)
        spent, weights = session.seconds, session.weights
    if before is not None:
        fuse_weights(method.model, before, new_share(config.method.fuse, step))
    began = time.monotonic()
    method.end_step(context)
    aside += time.monotonic() - began
    outcome = {"losses": losses, "seconds": spent + aside, "peak_memory": peak_memory(device)}
    if log is not None:
        site.store.save_step(step.index, method, outcome, log.size, weights)
    return outcome


def _iterate(session: Session, data: Data, step: Step, site: Site, log: RunLog | None) -> dict[str, float]:
    """The iterations of a step from where the session is; returns the mean loss terms of its last epoch."""
    config, method = data.config, session.method
    replay = replay_memory(config.method.params)
    batches = data.train_batches(step.index, site.device, session.iteration, replay)
    batches = with_frozen_maps(batches, method, config, site.display)
    watch = watcher(method, data, step, site) if config.eval.every else None
    with site.display.bar(step_title(data, step), len(batches.order), session.iteration) as bar:
        losses = train_step(
            session, step, batches, config.optim, config.train, log, site.store, bar, site.interrupts, watch
        )
    site.group.broadcast_norm(method)
    return losses


def _take_over(method: Method, data: Data, step: Step, site: Site, start: dict[str, Any]) -> dict[str, Any]:
    """Step 0 as another run has trained it, with what it cost there."""
    context, precision = _context(data, step, site.device), data.config.train.precision
    take_over(method, context, start, site.folder, precision)
    if site.group.first:
        site.store.save_step(step.index, method, start["outcome"], weights=start.get("weights"))
    return start["outcome"]


def _context(data: Data, step: Step, device: torch.device) -> StepContext:
    generator = torch.Generator().manual_seed(derive_seed(data.config.train.seed, step.index, 1))
    return StepContext(step, data.one_pass(step.index, device), device, generator)
