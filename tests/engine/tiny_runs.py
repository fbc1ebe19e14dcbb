"""Small runs on the embedded data set, ways to stop them, and what it means that two of them are equal."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from segue.core.config import RunConfig
from segue.core.progress import Display
from segue.core.records import RunRecord
from segue.engine import train
from segue.engine.checkpoint import CheckpointStore, load_tree
from segue.engine.interrupt import Interrupted
from segue.engine.log import TIMES_LOG
from segue.engine.own_files import LAUNCH_FILE
from segue.engine.recipe import resolve
from segue.engine.run import run

SPLIT = "2-1"
WORDS = (
    "data.classes=3",
    "data.size=32",
    "data.train=40",
    "data.test=12",
    "train.crop=32",
    "train.batch_size=8",
    "train.epochs=3",
    "train.epochs_next=3",
    "train.log_every=2",
    "train.save_seconds=0",
    "eval.samples=2",
)
ITERATIONS = (9, 6)
"""of the two steps: 31 and 19 images, batches of 8, 3 epochs"""
WALL_CLOCK = ("seconds", "peak_memory")

DROPOUT = """
from dataclasses import dataclass
import torch
from segue.losses import cross_entropy
from segue.methods.base import About, Method

@dataclass(frozen=True)
class Config:
    pass

class Dropout(Method):
    '''Draws from the global generator, and only while it is in training mode.'''
    Config = Config
    about = About("dropout", "a test", 2020)

    def losses(self, batch):
        logits = torch.nn.functional.dropout(self.model(batch.images).logits, 0.3, self.training)
        return {"ce": cross_entropy(logits, batch.labels)}

METHOD = Dropout
"""


def recipe(method: str, *words: str) -> RunConfig:
    return resolve(method, "scenes", SPLIT, overrides=[*WORDS, *words])


def arguments(method: str | Path, folder: Path, *words: str) -> list[str]:
    """The same run as words of the command line."""
    return ["train", str(method), "--on", "scenes", "--split", SPLIT, "--out", str(folder), *WORDS, *words]


def quiet_run(config: RunConfig, folder: Path, **options: Any) -> RunRecord:
    return run(config, folder, display=Display(quiet=True), **options)


def run_until(config: RunConfig, folder: Path, iterations: int, display: Display | None = None) -> None:
    """Start or resume a run and press Ctrl-C in its n-th iteration from now."""
    done, update = 0, train.update

    def interrupting(*arguments: Any) -> Any:
        nonlocal done
        done += 1
        if done == iterations:
            os.kill(os.getpid(), signal.SIGINT)
        return update(*arguments)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(train, "update", interrupting)
        run(config, folder, resume=True, display=display or Display(quiet=True))


def files(folder: Path) -> list[str]:
    """All that equal runs have in common: neither what the clock said, nor which torchrun worked here."""
    own = (LAUNCH_FILE, TIMES_LOG)
    found = (path for path in folder.rglob("*") if path.is_file() and path.name not in own)
    return sorted(path.relative_to(folder).as_posix() for path in found)


def checkpoints(folder: Path) -> list[str]:
    return [entry.path.stem for entry in CheckpointStore(folder).entries()]


def weights(folder: Path, step: int) -> dict[str, torch.Tensor]:
    return load_tree(CheckpointStore(folder).path(step))["method"]


def log_lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def assert_equal_trees(ours: Any, theirs: Any, where: str = "") -> None:
    """Equal bit for bit, apart from what a clock says."""
    assert type(ours) is type(theirs), where
    if isinstance(ours, dict):
        assert list(ours) == list(theirs), where
        for key in ours:
            if key not in WALL_CLOCK:
                assert_equal_trees(ours[key], theirs[key], f"{where}/{key}")
    elif isinstance(ours, list):
        assert len(ours) == len(theirs), where
        for index, pair in enumerate(zip(ours, theirs, strict=True)):
            assert_equal_trees(*pair, f"{where}/{index}")
    elif isinstance(ours, torch.Tensor):
        assert ours.dtype == theirs.dtype and torch.equal(ours, theirs), where
    else:
        assert ours == theirs, where


def assert_equal_runs(ours: Path, theirs: Path) -> None:
    """Two runs left the same files with the same content, apart from their names and the time they took."""
    assert files(ours) == files(theirs)
    for name in files(ours):
        if name.endswith(".safetensors"):
            assert_equal_trees(load_tree(ours / name), load_tree(theirs / name), name)
        elif name.startswith("steps/"):
            records = [json.loads((folder / name).read_text()) for folder in (ours, theirs)]
            for record, folder in zip(records, (ours, theirs), strict=True):
                assert record.pop("run") == folder.name
            assert_equal_trees(*records, name)
        else:
            assert (ours / name).read_bytes() == (theirs / name).read_bytes(), name
