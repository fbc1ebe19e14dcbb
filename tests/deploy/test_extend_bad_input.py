"""What `segue extend` refuses: one clear sentence, exit code 2, and nothing touched or half-written."""

from __future__ import annotations

import errno
import functools
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from pets import QUIET, SIDE, content, draw, only, state, train
from PIL import Image

import segue
from segue.core import records
from segue.deploy import model_folder
from segue.engine import run as run_module
from segue.engine.folder import locked

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(name="birds")
def birds_fixture(tmp_path: Path) -> Path:
    return only(tmp_path / "bird", "b", "bird")


@pytest.fixture(name="own_model")
def own_model_fixture(model: Path, tmp_path: Path) -> Path:
    """A copy of the model that a test may damage."""
    return shutil.copytree(model, tmp_path / "own")


@pytest.fixture(name="refused")
def refused_fixture(command_line: Call, tmp_path: Path) -> Callable[..., str]:
    """`segue extend MODEL DATA --out grown WORDS` is refused, and leaves everything as it was."""

    def refused(model: Path, data: Path, *words: object) -> str:
        before = content(tmp_path), content(model)
        code, _, err = command_line("extend", model, data, "--out", tmp_path / "grown", *words)
        assert code == 2, err
        assert "Traceback" not in err and any(line.startswith("error: ") for line in err.splitlines())
        assert (content(tmp_path), content(model)) == before
        assert not list(tmp_path.glob("grown*")), "not even an empty folder"
        return err

    return refused


def test_data_without_new_classes(refused, model: Path, tmp_path: Path):
    assert "cat, dog" in refused(model, only(tmp_path / "old", "a", "dog"))


def test_data_that_are_not_there(refused, model: Path, tmp_path: Path):
    assert "nowhere" in refused(model, tmp_path / "nowhere")


def test_a_folder_without_annotations(refused, model: Path, tmp_path: Path):
    (tmp_path / "empty").mkdir()
    assert "No annotations were found" in refused(model, tmp_path / "empty")


def test_names_whose_images_nobody_took(refused, model: Path, tmp_path: Path):
    data = only(tmp_path / "old", "a", "dog")
    (data / "classes.txt").write_text("background\ndog\nbird")
    assert "0 training images" in refused(model, data)


def test_masks_with_ids_that_have_no_name(refused, model: Path, birds: Path):
    mask = np.full((SIDE, SIDE), 9, dtype=np.uint8)
    Image.fromarray(mask).save(birds / "masks" / "train" / "b3.png")
    err = refused(model, birds)
    assert "b3.png" in err and "9" in err


def test_colours_that_have_no_name(refused, model: Path, birds: Path):
    (birds / "classes.txt").unlink()
    for path in (birds / "masks").rglob("*.png"):
        Image.fromarray(np.full((SIDE, SIDE, 3), 77, dtype=np.uint8)).save(path)
    (birds / "labelmap.txt").write_text("background:0,0,0::\nbird:9,9,9::\n")
    assert "77,77,77" in refused(model, birds)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "preprocessor_config.json"])
def test_a_flipped_byte_in_the_model(refused, own_model: Path, birds: Path, name: str):
    content = bytearray((own_model / name).read_bytes())
    content[len(content) // 2] ^= 1
    (own_model / name).write_bytes(content)
    assert str(own_model) in refused(own_model, birds)


def test_a_model_of_a_newer_version(refused, own_model: Path, birds: Path):
    config = json.loads((own_model / "config.json").read_text())
    config["segue"]["format"] = "segue-folder-99"
    (own_model / "config.json").write_text(json.dumps(config))
    err = refused(own_model, birds)
    assert "segue-folder-99" in err and "version" in err


def test_a_method_that_cannot_go_on_with_the_model(refused, model: Path, birds: Path):
    assert "classifier" in refused(model, birds, "--method", "ssul")


def test_a_model_in_the_way(command_line: Call, model: Path, own_model: Path, birds: Path, tmp_path: Path):
    before = content(own_model)
    code, _, err = command_line("extend", model, birds, "--out", own_model)
    assert code == 2 and f"{own_model} exists" in err
    assert content(own_model) == before and not (tmp_path / "own-run").exists()


def test_two_at_once(command_line: Call, model: Path, birds: Path, tmp_path: Path, monkeypatch):
    before = content(model)
    monkeypatch.setattr(run_module, "locked", functools.partial(locked, patience=0.0))
    with locked(tmp_path / "grown-run"):
        code, _, err = command_line("extend", model, birds, "--out", tmp_path / "grown")
    assert code == 2 and "Another process" in err and "grown-run" in err
    assert content(model) == before and not list(tmp_path.glob("grown*"))


def full_after(monkeypatch: pytest.MonkeyPatch, writes: int) -> None:
    """A disk that is full after so many files: at the one place that makes them."""
    real, count = os.fsync, iter(range(10_000))

    def fsync(handle: int) -> None:
        if next(count) >= writes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(handle)

    monkeypatch.setattr(records.os, "fsync", fsync)


@pytest.mark.parametrize("writes", [0, *range(2, 11)])
def test_a_full_disk(command_line: Call, model: Path, birds: Path, tmp_path: Path, writes: int):
    before, words = content(model), ("extend", model, birds, "--out", tmp_path / "grown", "--epochs", 1)
    with pytest.MonkeyPatch.context() as patch:
        full_after(patch, writes)
        code, _, err = command_line(*words)
    assert code == 2 and "No space left" in err and "Traceback" not in err
    assert content(model) == before
    assert not list(tmp_path.rglob("*.part")), "nothing half-written"
    out = tmp_path / "grown"
    assert not out.exists(), "no piece of a model"
    assert command_line(*words, "--resume")[0] in (0, 1), "with space it goes on"
    straight = segue.extend(
        model, birds, tmp_path / "straight", overrides=["train.epochs_next=1"], display=QUIET, device="cpu"
    )
    assert straight.classes == segue.load(out).classes
    ours, theirs = state(tmp_path / "grown-run", 1), state(tmp_path / "straight-run", 1)
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)


def test_known_classes_may_have_other_ids(command_line: Call, model: Path, tmp_path: Path):
    """Names decide: bird has id 1 in the masks and channel 3 in the model, dog has id 7 and channel 2."""
    names = ("bird", "x2", "x3", "x4", "x5", "x6", "dog")
    for number in range(6):
        draw(tmp_path / "a", f"n{number}", (1, 2), ("dog", "bird"))
        draw(tmp_path / "b", f"n{number}", (1, 2), ("dog", "bird"))
    for part in ("a", "b"):
        for key in ("images", "masks"):
            shutil.copytree(tmp_path / part / key / "train", tmp_path / part / key / "val")
    for path in (tmp_path / "b" / "masks").rglob("*.png"):
        mask = np.asarray(Image.open(path))
        Image.fromarray(np.choose(mask, [0, 7, 1]).astype(np.uint8)).save(path)
    (tmp_path / "b" / "classes.txt").write_text("\n".join(["background", *names]))
    for part, more in (("a", ()), ("b", ("--new", "bird"))):
        words = ("extend", model, tmp_path / part, "--out", tmp_path / f"out-{part}", "--epochs", 1)
        assert command_line(*words, *more)[0] in (0, 1)
    assert segue.load(tmp_path / "out-b").classes == ("background", "cat", "dog", "bird")
    ours, theirs = state(tmp_path / "out-b-run", 1), state(tmp_path / "out-a-run", 1)
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs), "the ids play no part"


def test_a_model_that_keeps_nothing_is_extended_and_it_is_said(
    command_line: Call, everything: Path, birds: Path, tmp_path: Path
):
    segue.load(train("ewc", "cat,dog", everything, tmp_path / "run")).save(tmp_path / "model")
    stored = segue.load(tmp_path / "model")
    assert stored.history.kept
    stored.history = type(stored.history)(stored.history.steps, stored.history.recipe)
    stored.save(tmp_path / "bare")
    code, _, err = command_line("extend", tmp_path / "bare", birds, "--out", tmp_path / "grown")
    assert code in (0, 1), err
    assert "does not hold all" in err and str(tmp_path / "bare") in err
    code, _, err = command_line("extend", tmp_path / "model", birds, "--out", tmp_path / "other")
    assert code in (0, 1) and "does not hold all" not in err


def test_a_method_file_that_only_the_model_names_is_not_run(
    refused, own_model: Path, birds: Path, tmp_path: Path
):
    evil = own_model / "evil.py"
    evil.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    config = json.loads((own_model / "config.json").read_text())
    config["segue"]["recipe"]["method"]["name"] = str(evil)
    prepared = json.loads((own_model / "preprocessor_config.json").read_text())
    tensors = model_folder._tensors(own_model)
    config["segue"]["digest"] = model_folder._digest(config, prepared, *tensors)
    (own_model / "config.json").write_text(json.dumps(config))
    assert "run only if you name it" in refused(own_model, birds).replace("\n", " ")
    assert not (tmp_path / "ran").exists()
