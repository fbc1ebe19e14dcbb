"""One more class for a model: the old images are gone, and the numbers are those of the scenario."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from pets import NAMES, QUIET, SIDE, TINY, draw, only, state, train

import segue
from segue.core.errors import UserError
from segue.deploy.extend import recipe_of


@pytest.mark.parametrize("method", ["caf", "mib", "ewc", "sdr"])
def test_extending_is_the_step_of_the_scenario_bit_for_bit(everything: Path, tmp_path: Path, method: str):
    rehearsed = train(method, "cat,dog/bird/fish", everything, tmp_path / "rehearsed")
    first = train(method, "cat,dog", everything, tmp_path / "first")
    segue.load(first).save(tmp_path / "model-0")
    shutil.rmtree(first)  # no run, no images: the folder alone
    for step, (letter, name) in enumerate((("b", "bird"), ("c", "fish")), start=1):
        data = only(tmp_path / name, letter, name)
        models = (tmp_path / f"model-{number}" for number in (step - 1, step))
        words = ["model.frozen_stages=0", "train.balance=none"]  # as in the scenario
        segue.extend(next(models), data, next(models), overrides=words, display=QUIET, device="cpu")
        shutil.rmtree(data)
        ours, theirs = state(tmp_path / f"model-{step}-run", step), state(rehearsed, step)
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[key], theirs[key]) for key in theirs), step
    assert segue.load(tmp_path / "model-2").classes == ("background", *NAMES)


def test_a_folder_is_laid_out_as_hubs_expect(model: Path):
    config = json.loads((model / "config.json").read_text())
    assert config["id2label"] == {"0": "background", "1": "cat", "2": "dog"}
    assert config["label2id"]["dog"] == 2 and config["segue"]["steps"] == [["cat", "dog"]]
    assert "data.root" not in (model / "config.json").read_text()
    preparation = json.loads((model / "preprocessor_config.json").read_text())
    assert len(preparation["image_mean"]) == 3 and preparation["size"] == {"shortest_edge": 32}
    assert (model / "README.md").read_text().startswith("---\n")


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "preprocessor_config.json"])
def test_one_changed_byte_is_found(model: Path, tmp_path: Path, name: str):
    copy = shutil.copytree(model, tmp_path / "copy")
    content = bytearray((copy / name).read_bytes())
    place = len(content) // 2
    content[place] ^= 1
    (copy / name).write_bytes(content)
    with pytest.raises(UserError, match="copy"):
        segue.load(copy)


def test_a_folder_of_a_newer_version_says_so(model: Path, tmp_path: Path):
    copy = shutil.copytree(model, tmp_path / "copy")
    text = (copy / "config.json").read_text().replace("segue-folder-1", "segue-folder-99")
    (copy / "config.json").write_text(text)
    with pytest.raises(UserError, match=r"segue-folder-99"):
        segue.load(copy)


def test_old_classes_that_are_annotated_too_are_used(model: Path, tmp_path: Path):
    for number in range(6):
        draw(tmp_path / "new", f"n{number}", (1, 2), ("dog", "bird"), "train")
    draw(tmp_path / "new", "v", (2,), ("dog", "bird"), "val")
    grown = segue.extend(model, tmp_path / "new", tmp_path / "grown", display=QUIET, device="cpu")
    assert grown.classes == ("background", "cat", "dog", "bird")
    record = segue.read_run(tmp_path / "grown-run")
    assert [step.step for step in record.steps] == [1] and record.finished
    assert record.steps[0].policy["mode"] == "sequential"


@pytest.mark.parametrize(
    ("names", "words", "named"),
    [
        (("cat",), {}, "no class"),
        (("Dog",), {}, "Dog"),
        (("bird",), {"new": ["cat"]}, "cat"),
        (("bird",), {"new": ["brid"]}, "bird"),
    ],
)
def test_data_that_teach_nothing_are_refused(model: Path, tmp_path: Path, names, words, named: str):
    before = {path.name: path.read_bytes() for path in model.iterdir()}
    for number in range(4):
        draw(tmp_path / "new", f"n{number}", (1,), names)
    with pytest.raises(UserError, match=named):
        segue.extend(model, tmp_path / "new", tmp_path / "grown", display=QUIET, **words)
    assert not (tmp_path / "grown").exists()
    assert {path.name: path.read_bytes() for path in model.iterdir()} == before


def test_a_stopped_extension_goes_on(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    data, words = only(tmp_path / "bird", "b", "bird"), {"display": QUIET, "device": "cpu"}
    segue.extend(model, data, tmp_path / "straight", **words)
    from segue.engine import run as run_module

    with monkeypatch.context() as patch:
        patch.setattr(run_module, "record_step", lambda *_: (_ for _ in ()).throw(SystemExit))
        with pytest.raises(SystemExit):
            segue.extend(model, data, tmp_path / "grown", **words)
    segue.extend(model, data, tmp_path / "grown", resume=True, **words)
    ours, theirs = state(tmp_path / "grown-run", 1), state(tmp_path / "straight-run", 1)
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)


def test_from_training_to_a_verdict_at_the_command_line(command_line, everything: Path, tmp_path: Path):
    """The story of docs/extend-a-model.md: train, delete the images, extend, look at the verdict."""
    root = shutil.copytree(everything, tmp_path / "pets")
    words = ("--on", "folder", "--split", "cat,dog", f"data.root={root}", *TINY)
    assert command_line("train", "caf", *words, "--out", tmp_path / "first", "--quiet")[0] == 0
    assert command_line("export", tmp_path / "first", tmp_path / "model")[0] == 0
    shutil.rmtree(root)
    shutil.rmtree(tmp_path / "first")
    data = only(tmp_path / "bird", "b", "bird")
    code, text, err = command_line("extend", tmp_path / "model", data, "--out", tmp_path / "grown", "--quiet")
    assert code in (0, 1), err
    assert "bird (new)" in text and "--check FOLDER" in text
    verdict = json.loads((tmp_path / "grown-run" / "verdict.json").read_text())
    assert verdict["new"].keys() == {"bird"} and verdict["answer"] in text
    page = tmp_path / "grown-run" / "verdict.html"
    pictures = page.read_text().count("data:image/png")
    assert str(page) in text and pictures >= 4 * 3 and pictures % 4 == 0, "each held-out image"
    card = (tmp_path / "grown" / "README.md").read_text()
    assert f"**{verdict['answer']}**" in card and "| 0 | `cat` (8), `dog` (8) | 8 | 3 |" in card
    assert "| 1 | `bird` (8) | 8 | 3 |" in card and "`bird` (new)" in card
    mask = segue.load(tmp_path / "grown").predict(data / "images" / "val" / "b0.png")
    assert mask.ids.shape == (SIDE, SIDE)
    words = ("extend", tmp_path / "model", data, "--out", tmp_path / "grown")
    code, text, err = command_line(*words, "--resume", "--check", everything, "--json")
    verdict = json.loads(text)
    assert {one["name"] for one in verdict["old"]} == {"cat", "dog"}
    assert all(one["low"] <= one["after"] - one["before"] <= one["high"] for one in verdict["old"])
    code, _, err = command_line("extend", tmp_path / "model", data, "--out", tmp_path / "model")
    assert code == 2 and "Traceback" not in err


@pytest.mark.parametrize(("word", "epochs"), [("train.epochs=3", 3), ("train.epochs_next=4", 4)])
def test_epochs_that_are_asked_for_are_those_of_the_step(model: Path, word: str, epochs: int):
    loaded = segue.load(model)
    train = {**loaded.history.recipe["train"], "epochs_next": 8}
    history = replace(loaded.history, recipe={**loaded.history.recipe, "train": train})
    recipe = recipe_of(replace(loaded, history=history), "birds", ["bird"], None, [word])
    assert (recipe.train.epochs_next or recipe.train.epochs) == epochs


def test_two_extensions_into_one_folder_are_refused(command_line, model: Path, tmp_path: Path):
    data = only(tmp_path / "bird", "b", "bird")
    words = ("extend", model, data, "--out", tmp_path / "grown", "--quiet", "--epochs", 1)
    assert command_line(*words)[0] in (0, 1)
    assert segue.read_run(tmp_path / "grown-run").recipe["train"]["epochs_next"] == 1
    code, _, err = command_line(*words)
    assert code == 2 and "--resume" in err
    assert command_line(*words, "--overwrite")[0] in (0, 1), "the page is the run's own file"


def test_a_check_folder_without_known_classes_is_refused_before_training(command_line, model, tmp_path: Path):
    data = only(tmp_path / "bird", "b", "bird")
    words = ("extend", model, data, "--out", tmp_path / "grown", "--check", only(tmp_path / "x", "c", "fish"))
    code, _, err = command_line(*words)
    assert code == 2 and "fish" in err and not (tmp_path / "grown-run").exists()


@pytest.mark.parametrize(("words", "balance"), [((), "classes"), (("train.balance=none",), "none")])
def test_new_classes_are_balanced_unless_a_word_says_otherwise(words: tuple[str, ...], balance: str):
    from segue.deploy.extend import with_balance

    assert with_balance([*words, "train.epochs=2"])[0] == f"train.balance={balance}"
