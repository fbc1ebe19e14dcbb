"""The iteration loop: one step's training from any iteration to its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from segue.core.config import OptimConfig, TrainConfig
from segue.core.errors import UserError, memory_ran_out
from segue.core.progress import Bar
from segue.core.scenario import Step
from segue.data.batches import Batch, Batches
from segue.engine.checkpoint import CheckpointStore, load_strictly
from segue.engine.device import autocast, peak_memory
from segue.engine.interrupt import Interrupted, Interrupts
from segue.engine.log import BadLoss, LossMeter, RunLog
from segue.engine.optim import build_optimizer, load_optimizer, set_learning_rate
from segue.engine.processes import ALONE, Group
from segue.engine.seeds import derive_seed, device_random_state, restore_device_random_state, seed_iteration
from segue.losses.balance import balanced_classes
from segue.losses.processes import sum_over_processes
from segue.methods.base import Method


@dataclass
class Session:
    """The moving parts of a step in training; `state_dict` is what a checkpoint inside the step holds."""

    method: Method
    module: nn.Module
    """method, or the wrapper around it that averages gradients over processes"""
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    generator: torch.Generator
    device: torch.device
    group: Group = ALONE
    iteration: int = 0
    seconds: float = 0.0
    weights: str | None = None
    """hash of the file of weights that step 0 began with"""
    recent: LossMeter = field(default_factory=LossMeter)
    epoch: LossMeter = field(default_factory=LossMeter)

    @classmethod
    def start(cls, method: Method, step: Step, optim: OptimConfig, train: TrainConfig, device: torch.device,
              generator: torch.Generator, group: Group = ALONE) -> Session:  # fmt: skip
        scaler = torch.amp.GradScaler(device.type, enabled=train.precision == "fp16")
        optimizer = build_optimizer(method, optim, step)
        return cls(method, group.wrap(method), optimizer, scaler, generator, device, group)

    def state_dict(self) -> dict[str, Any]:
        return {
            "method": self.method.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "generator": self.generator.get_state(),
            "torch_rng": torch.get_rng_state(),
            "device_rng": device_random_state(self.device),
            "iteration": self.iteration,
            "seconds": self.seconds,
            "weights": self.weights,
            "recent": self.recent.state_dict(),
            "epoch": self.epoch.state_dict(),
        }

    def count(self, terms: dict[str, Tensor], per_epoch: int) -> None:
        """Take in the loss terms of an iteration that is done."""
        if self.iteration % per_epoch == 0:
            self.epoch.reset()
        self.recent.add(terms)
        self.epoch.add(terms)
        self.iteration += 1

    def load_state_dict(self, state: dict[str, Any]) -> None:
        where = "the checkpoint inside the step"
        load_strictly(self.method, state["method"], where)
        try:
            load_optimizer(self.optimizer, state["optimizer"])
            self.scaler.load_state_dict(state["scaler"])
            self.generator.set_state(state["generator"])
            torch.set_rng_state(state["torch_rng"])
            restore_device_random_state(self.device, state["device_rng"])
        except (ValueError, KeyError, TypeError, RuntimeError) as error:
            raise UserError(f"{where.capitalize()} does not fit the recipe: {error}") from error
        self.iteration, self.seconds = state["iteration"], state["seconds"]
        self.weights = state.get("weights")
        self.recent.load_state_dict(state["recent"], self.device)
        self.epoch.load_state_dict(state["epoch"], self.device)


def train_step(
    session: Session,
    step: Step,
    batches: Batches,
    optim: OptimConfig,
    config: TrainConfig,
    log: RunLog | None,
    store: CheckpointStore,
    bar: Bar,
    interrupts: Interrupts,
    after_epoch: Callable[[int], None] | None = None,
) -> dict[str, float]:
    """Train to the end of the step; returns the mean loss terms of its last epoch.

    `after_epoch` may look at the method (not change it); its time is not counted. All processes do the same,
    but the first alone has a log and saves.
    """
    group, total, per_epoch = session.group, len(batches.order), batches.order.per_epoch
    began = saved = time.monotonic()
    spent, images = session.seconds, 0
    session.method.train()
    if log is not None:
        log.count_from(session.iteration, session.seconds)
    with interrupts.after_iteration() as stop, closing(iter(batches)) as source:
        try:
            for batch in source:
                set_learning_rate(session.optimizer, session.iteration, total, optim.poly_power)
                if group.size > 1:  # checkpoints hold the random state of the first process only
                    numbers = config.seed, step.index, session.iteration, group.rank
                    seed_iteration(session.device, derive_seed(*numbers))
                session.count(update(session, batch, optim.clip, config), per_epoch)
                images += batch.global_size
                now = time.monotonic()
                session.seconds = spent + now - began
                if bar.due:
                    bar.update(session.iteration, _status(session.recent.means(), images / (now - began)))
                if session.iteration % config.log_every == 0 or session.iteration == total:
                    _log_losses(session, step, per_epoch, log)
                if after_epoch is not None and session.iteration % per_epoch == 0:
                    after_epoch(session.iteration // per_epoch)
                    session.method.train()
                    began += time.monotonic() - now
                stopping = group.any(stop.is_set())
                due = now - saved >= config.save_seconds and session.iteration < total
                if group.first and (stopping or due):
                    _save(session, step, log, store)
                    saved = time.monotonic()
                if stopping:
                    group.wait()  # torchrun ends all when the first one ends, even one that saves
                    raise Interrupted
            check_weights(session.method)
            return session.epoch.means()
        except (BadLoss, RuntimeError, MemoryError) as error:
            if not isinstance(error, BadLoss) and not memory_ran_out(error):
                raise
            raise _failure(error, step, session.iteration, total) from error


def update(session: Session, batch: Batch, clip: float | None, config: TrainConfig) -> dict[str, Tensor]:
    """One optimiser update; returns the loss terms, averaged over the global batch.

    The gradients of each micro-batch are averaged over the processes, weighted by what each has of the batch.
    """
    terms: dict[str, Tensor] = {}
    world_size = batch.rank_slice.world_size
    for micro_batch in batch.split(config.accumulate):
        weight = len(micro_batch) / batch.global_size
        with autocast(session.device, config.precision), balanced_classes(config.balance == "classes"):
            losses = session.module(micro_batch)
            if not isinstance(losses, dict) or not losses or not all(map(_is_term, losses.values())):
                raise UserError(
                    f"losses() of {type(session.method).__name__} returns no dict of named terms, tensors of"
                    " one number each."
                )
        session.scaler.scale(sum(losses.values()) * (weight * world_size)).backward()
        for name, value in losses.items():
            terms[name] = terms.get(name, 0.0) + value.detach() * weight
    session.scaler.unscale_(session.optimizer)
    session.method.after_backward()
    if clip is not None:
        params = [
            p for group in session.optimizer.param_groups for p in group["params"] if p.grad is not None
        ]
        nn.utils.clip_grad_norm_(params, clip)
    session.scaler.step(session.optimizer)
    session.scaler.update()
    session.optimizer.zero_grad(set_to_none=True)
    if world_size > 1:
        summed = sum_over_processes(torch.stack([value.to(session.device) for value in terms.values()]))
        terms = dict(zip(terms, summed, strict=True))
    return terms


def _is_term(value: Any) -> bool:
    return isinstance(value, Tensor) and value.ndim == 0


def check_weights(method: Method) -> None:
    """A gradient may overflow while the losses are finite: stop before such weights are stored."""
    for name, weight in method.named_parameters():
        bad = weight[~torch.isfinite(weight)]
        if len(bad):
            raise BadLoss(name, bad[0].item(), "weight")


def _failure(error: Exception, step: Step, iteration: int, total: int) -> UserError:
    """What a user reads when training cannot go on."""
    if not isinstance(error, BadLoss):
        return UserError(
            f"The device has not enough memory for step {step.index}. Likely fixes: a larger"
            " train.accumulate, or a smaller train.batch_size or train.crop."
        )
    return UserError(
        f"{error} Stopped in step {step.index} near iteration {iteration} of {total}; the last good"
        " checkpoint is kept. Likely fixes: a lower optim.lr_first or optim.lr_next, optim.clip=5, or a"
        f" lower weight for {error.culprit}."
    )


def _log_losses(session: Session, step: Step, per_epoch: int, log: RunLog | None) -> None:
    """The mean losses since the last line; every process asks for them, and so hears of a bad one."""
    line = {
        "step": step.index,
        "epoch": (session.iteration - 1) // per_epoch,
        "iteration": session.iteration,
        "lr": session.optimizer.param_groups[0]["lr"],
        "losses": session.recent.means(),
    }
    if log is not None:
        log.write(line, session.seconds, peak_memory(session.device))
    session.recent.reset()


def _save(session: Session, step: Step, log: RunLog, store: CheckpointStore) -> None:
    """A checkpoint inside the step, which is only written while every loss and every weight is finite."""
    session.recent.means()
    check_weights(session.method)
    store.save_inside(step.index, session.iteration, session.state_dict() | {"log_bytes": log.size})


def _status(means: dict[str, float], images_per_second: float) -> str:
    shown = " ".join(f"{name} {value:.3g}" for name, value in means.items())
    return f"{shown}  {images_per_second:.0f} img/s"
