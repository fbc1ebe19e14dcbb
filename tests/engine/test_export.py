"""Export of a run: the model of test time alone, from the run folder alone."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from tiny_runs import recipe

from segue.core.classes import ClassTable
from segue.core.records import read_run
from segue.core.scenario import make_scenario
from segue.data.datasets.scenes import Scenes
from segue.deploy.model_file import load_model
from segue.engine.checkpoint import CheckpointStore
from segue.engine.restore import restore_method
from segue.methods.base import Method

CPU = torch.device("cpu")
CLASSES = ClassTable("scenes", {1: "barred disc", 2: "barred square", 3: "barred triangle"})


def restored(folder: Path, method: str, step: int) -> Method:
    offline = method == "joint"
    scenario = make_scenario(CLASSES, "2-1", offline=offline)
    return restore_method(recipe(method), folder, scenario[: step + 1], CPU)


@pytest.mark.parametrize(("method", "step"), [("caf", 1), ("caf", 0), ("mib", None), ("joint", None)])
def test_exported_model_predicts_what_the_run_does(method, step, finished, tmp_path, command):
    target = tmp_path / "model.safetensors"
    outcome = command("export", finished(method), target, *([] if step is None else ["--step", str(step)]))
    assert (outcome.code, outcome.err) == (0, "")
    step = step if step is not None else (0 if method == "joint" else 1)
    model, classes = load_model(target)
    assert classes == read_run(finished(method)).steps[step].classes
    assert f"{len(classes)} channels" in outcome.out
    whole = restored(finished(method), method, step)
    images = torch.randint(0, 256, (3, 3, 40, 48), dtype=torch.uint8)
    with torch.inference_mode():
        logits = model(images).logits
        assert logits.shape == (3, len(classes), 5, 6), "at the model's stride"
        logits = torch.nn.functional.interpolate(logits, size=(40, 48), mode="bilinear")
        expected = whole.predict(images)
    assert (logits - expected).abs().max() <= 1e-4 * expected.abs().max() and expected.std() > 1e-3


def test_exported_model_lacks_the_old_branch_and_the_fusion(finished, tmp_path, command):
    outcome = command("export", finished("caf"), tmp_path / "m.safetensors")
    model, _ = load_model(tmp_path / "m.safetensors")
    with safe_open(tmp_path / "m.safetensors", framework="pt") as file:
        names = set(file.keys())
    assert not [name for name in names if "project_old" in name or "fusion.fusion" in name]
    assert any("project_new" in name for name in names), "the rest of the layer is there"
    whole = restored(finished("caf"), "caf", 1).model
    removed = sum(
        parameter.numel()
        for part in (whole.fusion.project_old, whole.fusion.fusion)
        for parameter in part.parameters()
    )
    count = sum(parameter.numel() for parameter in model.parameters())
    assert removed > 0 and count == sum(parameter.numel() for parameter in whole.parameters()) - removed
    assert int(re.search(r"([\d,]+) parameters", outcome.out)[1].replace(",", "")) == count


def test_export_needs_neither_the_data_set_nor_records(finished, tmp_path, command, monkeypatch):
    folder = tmp_path / "caf"
    shutil.copytree(finished("caf"), folder)
    for name in ("steps", "samples"):
        shutil.rmtree(folder / name)

    def gone(*_: object) -> None:
        raise AssertionError("the data set was opened")

    monkeypatch.setattr(Scenes, "__init__", gone)
    assert command("export", folder, tmp_path / "bare").code == 0
    assert command("export", finished("caf"), tmp_path / "whole").code == 0
    (bare, classes), (whole, same) = load_model(tmp_path / "bare"), load_model(tmp_path / "whole")
    assert classes == same and list(bare.state_dict()) == list(whole.state_dict())
    for name, value in bare.state_dict().items():
        assert torch.equal(value, whole.state_dict()[name]), name


def unfinished(folder: Path) -> None:
    shutil.rmtree(folder / "checkpoints")


def no_manifest(folder: Path) -> None:
    (folder / "scenario.json").unlink()


def edited_manifest(folder: Path) -> None:
    path = folder / "scenario.json"
    path.write_text(path.read_text().replace("barred disc", "dotted disc"))


def no_groups(folder: Path) -> None:
    document = json.loads((folder / "scenario.json").read_text())
    (folder / "scenario.json").write_text(json.dumps(document | {"groups": 3}))


def damaged_checkpoint(folder: Path) -> None:
    path = CheckpointStore(folder).path(1)
    path.write_bytes(path.read_bytes()[:-9])


def no_recipe(folder: Path) -> None:
    (folder / "recipe.yaml").unlink()


@pytest.mark.parametrize(
    ("harm", "words", "message"),
    [
        (unfinished, [], "has no finished step yet, or its checkpoints are gone"),
        (unfinished, ["--step", "1"], "keeps no checkpoint of step 1; kept: none"),
        (no_manifest, [], "Cannot read the manifest"),
        (edited_manifest, [], "hash does not match"),
        (no_groups, [], "scenario.json does not list the classes of each step"),
        (damaged_checkpoint, [], "step1.safetensors is damaged"),
        (no_recipe, [], "is not a run folder: it has no recipe.yaml"),
        (None, ["--step", "2"], "There is no step 2: the scenario has steps 0 to 1."),
        (None, ["--step", "-1"], "There is no step -1"),
    ],
)
def test_run_that_cannot_be_exported_is_refused(harm, words, message, finished, tmp_path, command):
    folder = tmp_path / "mib"
    shutil.copytree(finished("mib"), folder)
    if harm is not None:
        harm(folder)
    outcome = command("export", folder, tmp_path / "model", *words)
    assert outcome.code == 2 and message in " ".join(outcome.err.split())
    assert not (tmp_path / "model").exists()
