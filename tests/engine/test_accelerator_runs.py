"""Whole runs on an accelerator that is none: the engine's own loop waits for nothing, and a run resumes.

Methods are in tests/methods/test_accelerator.py, models outside their runs in tests/deploy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerator import Accelerator, device
from tiny_runs import assert_equal_runs, quiet_run, recipe, run_until

from segue.core.errors import UserError
from segue.core.records import RunRecord
from segue.data.batches import Batch
from segue.engine import run as run_module
from segue.engine.build import build_method
from segue.engine.evaluate import evaluate_by
from segue.engine.restore import evaluate_run

DEVICE = device()
"""asked for when tests are collected: see there"""
SHORT = ("data.train=16", "data.test=6", "train.batch_size=4", "train.epochs=1", "train.epochs_next=1",
         "train.log_every=1000", "train.save_seconds=600", "eval.samples=0")  # fmt: skip
IMAGINED = ("method.params.rehearsal.weight=1", "method.params.rehearsal.store=imagined")
RUNS = {
    "weights": ("mib", "method.fuse=ewf", "method.start=similar", "train.norm=batch", "optim.clip=1",
                "eval.background=closed"),
    "batches": ("caf", *IMAGINED, "train.precision=fp16", "train.balance=classes", "train.accumulate=2",
                "train.channels_last=true"),
    "frozen stages": ("mib", "model.frozen_stages=1", "train.cache_frozen=true", "train.views=1",
                      "train.epochs_next=2", "train.precision=bf16"),
    "images of earlier steps": ("ssul", "method.params.memory.size=6"),
}  # fmt: skip
LOGGED = Counter({"to cpu": 1})
"""waits of an iteration whose losses are written down: all terms at once"""
TESTED = Counter({"mask": 2, "bincount": 1})
"""waits of a batch in a test; they may only fall"""


@pytest.fixture
def accelerator(monkeypatch: pytest.MonkeyPatch) -> Iterator[Accelerator]:
    monkeypatch.setattr("segue.engine.processes.pick_device", lambda _: DEVICE)
    monkeypatch.setattr("segue.engine.restore.pick_device", lambda _: DEVICE)
    with Accelerator() as made:
        yield made


class Counted:
    """Batches that note the waits from asking for one of them to asking for the next."""

    def __init__(self, batches: Any, accelerator: Accelerator, noted: list[Counter[str]]) -> None:
        self.batches, self.accelerator, self.noted = batches, accelerator, noted
        self.order, self.device = getattr(batches, "order", None), batches.device

    def __iter__(self) -> Iterator[Batch]:
        source, before = iter(self.batches), self.accelerator.waits.copy()
        for batch in source:
            yield batch
            self.noted.append(self.accelerator.waits - before)
            before = self.accelerator.waits.copy()


@pytest.fixture
def iterations(accelerator: Accelerator, monkeypatch: pytest.MonkeyPatch) -> list[Counter[str]]:
    """The waits of every iteration of training that the engine does."""
    noted: list[Counter[str]] = []
    train_step = run_module.train_step

    def counted(session: Any, step: Any, batches: Any, *rest: Any) -> Any:
        return train_step(session, step, Counted(batches, accelerator, noted), *rest)

    monkeypatch.setattr(run_module, "train_step", counted)
    return noted


def go(folder: Path, method: str, *words: str) -> RunRecord:
    return quiet_run(recipe(method, *SHORT, *words), folder)


@pytest.mark.parametrize("words", RUNS.values(), ids=RUNS)
def test_no_iteration_of_the_engine_waits(words: tuple[str, ...], iterations, tmp_path: Path) -> None:
    record = go(tmp_path / "run", *words)
    assert len(iterations) > 4 and iterations[-2:] == [Counter(), LOGGED]
    assert record.steps[-1].matrix.sum() == 6 * 32 * 32


@pytest.mark.usefixtures("accelerator")
def test_a_stopped_run_goes_on_as_if_it_had_not(tmp_path: Path) -> None:
    config = recipe("mib", *SHORT, "train.precision=fp16")
    quiet_run(config, tmp_path / "straight")
    run_until(config, tmp_path / "stopped", 4)  # inside the second step
    quiet_run(config, tmp_path / "stopped", resume=True)
    assert_equal_runs(tmp_path / "stopped", tmp_path / "straight")


def test_a_run_is_tested_anew(
    accelerator: Accelerator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = go(tmp_path / "run", "finetune")
    noted: list[Counter[str]] = []

    def counted(method: Any, names: Any, batches: Any, *rest: Any) -> Any:
        return evaluate_by(method, names, Counted(batches, accelerator, noted), *rest)

    monkeypatch.setattr("segue.engine.restore.evaluate_by", counted)
    matrices, _, _ = evaluate_run(tmp_path / "run")
    assert (next(iter(matrices.values())) == record.steps[-1].matrix).all()
    assert noted and all(each <= TESTED for each in noted), "it may only fall"


def test_a_method_that_needs_doubles_is_refused_on_mps() -> None:
    with pytest.raises(UserError, match="--device cpu"):
        build_method(recipe("acil"), torch.device("mps"), initial_weights=False)
