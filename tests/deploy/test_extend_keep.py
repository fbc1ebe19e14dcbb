"""`--keep`: a few old images that are shown again, with any method, as part of the run's identity."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from pets import QUIET, content, draw, only, state

import segue
from segue.core.errors import UserError
from segue.core.progress import Display
from segue.engine.checkpoint import tensor_digest
from segue.engine.data import build_data
from segue.engine.recipe import stored_recipe

WORDS = {"display": QUIET, "device": "cpu", "overrides": ["train.epochs=2"]}


@pytest.fixture(name="birds")
def birds_fixture(tmp_path: Path) -> Path:
    return only(tmp_path / "bird", "b", "bird")


@pytest.fixture(name="old")
def old_fixture(tmp_path: Path) -> Path:
    """Labelled images of old classes, under other ids than the model's channels, and one without any."""
    names = ("fish", "dog", "cat")
    for number in range(3):
        draw(tmp_path / "old", f"o{number}", (2, 3), names)
    draw(tmp_path / "old", "f0", (1,), names)
    draw(tmp_path / "old", "v", (2,), names, "val")
    return tmp_path / "old"


def test_kept_images_have_their_own_labels_in_every_batch(
    model: Path, birds: Path, old: Path, tmp_path: Path
):
    segue.extend(model, birds, tmp_path / "grown", keep=old, **WORDS)
    record = segue.read_run(tmp_path / "grown-run").steps[0]
    assert record.images["kept"] == 3, "those that show an old class, and none for testing"
    data = build_data(stored_recipe(tmp_path / "grown-run"), QUIET)
    for batch in data.train_batches(1, torch.device("cpu")):
        kept = [key.startswith("o") for key in batch.keys]
        assert sum(kept) == 2, "half of the four places"
        for labels, is_kept in zip(batch.labels, kept, strict=True):
            assert set(np.unique(labels)) <= ({0, 1, 2} if is_kept else {0, 3})
        assert {1, 2} <= set(batch.labels.unique().tolist())
    own = [key for batch in data.one_pass(1, torch.device("cpu")) for key in batch.keys]
    assert all(key.startswith("b") for key in own), "what a method gathers is of the step's own images"


@pytest.mark.parametrize(
    "method", ["caf", "finetune", "ewc", "ilt", "lwf_mc", "plop", "rw", "sdr", "incseg", "dft"]
)
def test_every_method_takes_them(model: Path, birds: Path, old: Path, tmp_path: Path, method: str):
    grown = segue.extend(model, birds, tmp_path / "grown", method=method, keep=old, **WORDS)
    assert grown.classes[-1] == "bird"


def test_they_are_part_of_the_run_and_it_goes_on_with_them(
    command_line, model: Path, birds: Path, old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from segue.engine import run as run_module

    straight = segue.extend(model, birds, tmp_path / "straight", keep=old, **WORDS)
    without = segue.extend(model, birds, tmp_path / "without", **WORDS)
    assert tensor_digest(straight.network.state_dict()) != tensor_digest(without.network.state_dict())
    with monkeypatch.context() as patch:
        patch.setattr(run_module, "record_step", lambda *_: (_ for _ in ()).throw(SystemExit))
        with pytest.raises(SystemExit):
            segue.extend(model, birds, tmp_path / "grown", keep=old, **WORDS)
    words = ("extend", model, birds, "--out", tmp_path / "grown", "--resume", "train.epochs=2")
    code, _, err = command_line(*words)
    assert code == 2 and "keep" in err
    moved = shutil.move(old, tmp_path / "moved")
    assert command_line(*words, "--keep", moved)[0] in (0, 1)
    ours, theirs = state(tmp_path / "grown-run", 1), state(tmp_path / "straight-run", 1)
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)
    recipe = segue.load(tmp_path / "grown").history.recipe
    assert recipe["scenario"]["keep"] is None and recipe["scenario"]["keep_digest"]


def test_images_that_changed_since_are_refused(model: Path, birds: Path, old: Path, tmp_path: Path):
    segue.extend(model, birds, tmp_path / "grown", keep=old, **WORDS)
    config = stored_recipe(tmp_path / "grown-run")
    shutil.copy(old / "masks" / "train" / "f0.png", old / "masks" / "train" / "o0.png")
    with pytest.raises(UserError, match="changed"):
        build_data(config, Display(quiet=True))


def test_kept_images_without_an_old_class_are_refused(command_line, model: Path, birds: Path, tmp_path: Path):
    before = content(model)
    fish = only(tmp_path / "fish", "c", "fish")
    code, _, err = command_line("extend", model, birds, "--out", tmp_path / "grown", "--keep", fish)
    assert code == 2 and str(fish) in err and "cat, dog" in err and "Traceback" not in err
    assert content(model) == before and not list(tmp_path.glob("grown*"))
