"""The small run that attacks damage, and its recipe."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from campaign.tally import Tally
from segue.core.config import RunConfig
from segue.core.progress import Display
from segue.deploy.load import load
from segue.engine.recipe import resolve
from segue.engine.run import run

SHORT = (
    *("data.classes=3", "data.size=32", "data.train=16", "data.test=6", "train.crop=32"),
    *("train.batch_size=8", "train.epochs=1", "train.epochs_next=1", "train.scale=[1,1]"),
    *("eval.samples=0", "train.save_seconds=0"),
)
QUIET = Display(quiet=True)
Attack = Callable[[Tally, int, int, Path], None]
"""function of tally, number of tries, seed and a folder to work in"""


def small_recipe() -> RunConfig:
    return resolve("finetune", "scenes", "2-1", overrides=SHORT)


def finished_run(place: Path) -> Path:
    """A run of it; made once."""
    folder = place / "run"
    if not folder.exists():
        run(small_recipe(), folder, display=QUIET)
    return folder


def model_folder(place: Path) -> Path:
    """The model of that run; made once."""
    folder = place / "model"
    if not folder.exists():
        load(finished_run(place)).save(folder)
    return folder
