"""Export of a run: the model of test time alone, from the run folder alone."""

from __future__ import annotations

import json
import re
import shutil
import warnings
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from tiny_runs import quiet_run, recipe

from segue.core.classes import ClassTable
from segue.core.errors import UserError
from segue.core.records import read_run
from segue.core.scenario import make_scenario
from segue.data.datasets.scenes import Scenes
from segue.deploy.model_file import load_model
from segue.engine.checkpoint import CheckpointStore
from segue.engine.restore import restore_method, restore_step
from segue.methods.base import Method
from segue.models import network
from segue.models.fusion import FUSIONS

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
    assert outcome.code == 0 and outcome.err.startswith("Next: segue predict "), outcome.err
    step = step if step is not None else (0 if method == "joint" else 1)
    model, header = load_model(target)
    classes = header.classes
    assert header.images.size == 32, "train.crop"
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
    model, *_ = load_model(tmp_path / "m.safetensors")
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
    targets = [tmp_path / f"{name}.safetensors" for name in ("bare", "whole")]
    assert command("export", folder, targets[0]).code == 0
    assert command("export", finished("caf"), targets[1]).code == 0
    (bare, classes), (whole, same) = map(load_model, targets)
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
    outcome = command("export", folder, tmp_path / "model.safetensors", *words)
    assert outcome.code == 2 and message in " ".join(outcome.err.split())
    assert not (tmp_path / "model.safetensors").exists()


@pytest.mark.parametrize("name", ["model.onxn", "model.pth", "model.safetensor"])
def test_file_is_what_its_ending_says_or_is_refused(name, finished, tmp_path, command):
    outcome = command("export", finished("mib"), tmp_path / name)
    assert outcome.code == 2 and ".safetensors" in outcome.err and not (tmp_path / name).exists()


def test_model_folder_and_file_are_exported_as_the_run_is(finished, tmp_path, command):
    for source, target in ((finished("caf"), "model"), ("model", "model.safetensors"), ("model", "a.pt")):
        outcome = command("export", tmp_path / source, tmp_path / target)
        assert outcome.code == 0, outcome.err
    assert "0 % of pixels changed" in outcome.out and "batch 2" in outcome.out
    assert command("export", tmp_path / "model.safetensors", tmp_path / "b.pt", "--output", "mask").code == 0
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["a.pt", "b.pt", "model", "model.safetensors"]
    images = torch.randint(0, 256, (2, 3, 37, 50), dtype=torch.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch will drop TorchScript one day
        logits, mask, _ = torch.jit.load(tmp_path / "a.pt")(images)
        (alone,) = torch.jit.load(tmp_path / "b.pt")(images)
    assert torch.equal(mask, alone) and torch.equal(logits.argmax(1), mask)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a.onnx", "--int8"], "--images FOLDER"),
        (["a.onnx", "--int8", "--half"], "exclude each other"),
        (["a.pt", "--half"], "ONNX files"),
        (["a.onnx", "--output", "map"], "map"),
        (["a.pt", "--step", "0"], "--step goes with runs"),
    ],
)
def test_choices_that_do_not_fit_are_refused(words, message, finished, tmp_path, command):
    name = "model" if "--step" in words else None
    source = tmp_path / name if name else finished("mib")
    if name:
        command("export", finished("mib"), source)
    outcome = command("export", source, tmp_path / words[0], *words[1:])
    assert outcome.code == 2 and message in " ".join(outcome.err.split())
    assert not (tmp_path / words[0]).exists()


GATED = """
from dataclasses import dataclass
from torch import nn
from segue.losses import cross_entropy
from segue.methods.base import About, Method
from segue.models.fusion import FUSIONS

@dataclass(frozen=True)
class Config:
    left_out: bool = False

class Gate(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.gate = nn.Conv2d(channels, channels, 1)

    def forward(self, z, old_z=None):
        return z * self.gate(z).sigmoid()
{described}
class Gated(Method):
    Config = Config
    about = About("gated", "a test", 2020)

    def __init__(self, config, model):
        super().__init__(config, model)
        model.fusion = Gate(model.backbone.channels[-1])

    def losses(self, batch):
        return {{"ce": cross_entropy(self.model(batch.images).logits, batch.labels)}}

    def deployed(self):
        model = super().deployed()
        if self.config.left_out:
            model.fusion = None
        return model

METHOD = Gated
"""
DESCRIBED = """
    def spec(self):
        return {"channels": self.gate.in_channels}

    @classmethod
    def from_spec(cls, channels, spec):
        return cls(spec["channels"])

FUSIONS["gate"] = Gate

"""


@pytest.mark.parametrize("way", ["described", "left out", "neither"])
def test_fusion_layer_of_ones_own_is_exported_or_the_user_is_told_how(way, tmp_path, command, monkeypatch):
    monkeypatch.setattr("segue.models.network.FUSIONS", {**FUSIONS})  # what the file adds is undone
    monkeypatch.setattr("segue.models.fusion.FUSIONS", network.FUSIONS)
    method, target = tmp_path / "gated.py", tmp_path / "model.safetensors"
    method.write_text(GATED.format(described=DESCRIBED if way == "described" else ""))
    words = [f"method.params.left_out={way == 'left out'}".lower(), "train.epochs=1", "train.epochs_next=1"]
    quiet_run(recipe(str(method), *words), tmp_path / "run")
    outcome = command("export", tmp_path / "run", target)
    if way == "neither":
        assert outcome.code == 2 and "spec()" in outcome.err and "FUSIONS['gate'] = Gate" in outcome.err
        assert not target.exists()
        return
    assert outcome.code == 0 and outcome.err.startswith("Next: segue predict "), outcome.err
    model, *_ = load_model(target)
    expected = restore_step(tmp_path / "run").method.deployed()
    images = torch.randint(0, 256, (1, 3, 32, 32), dtype=torch.uint8)
    ours, theirs = (network.double()(images).logits for network in (model, expected))
    assert torch.allclose(ours, theirs, rtol=0, atol=1e-9)
    if way == "described":
        del network.FUSIONS["gate"]  # as in a process that has not seen the file
        with pytest.raises(UserError, match=r"There is no fusion layer 'gate'.*is imported"):
            load_model(target)
