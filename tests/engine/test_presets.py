"""Presets: which one is chosen, what of it applies, and that recipes which name their network stay."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from own_folder import write_folder
from PIL import Image

from segue.core import plugins, presets
from segue.core.config import ModelConfig, RunConfig, TrainConfig, as_dict, recipe_hash, to_yaml
from segue.core.errors import UserError
from segue.core.machine import CudaGpu
from segue.core.overrides import differences
from segue.engine.build import check_weights
from segue.engine.recipe import complete, resolve, stored_recipe
from segue.models.segmenter import Segmenter

FOLDER = ("caf", "folder", "cat,dog/bird")


def said(*arguments: str, overrides: tuple[str, ...] = (), **more: object) -> tuple[RunConfig, list[str]]:
    notes: list[str] = []
    return resolve(*arguments, overrides=overrides, say=notes.append, **more), notes


@pytest.mark.parametrize("name", presets.PRESETS)
@pytest.mark.parametrize("method", ["caf", "mib"])
def test_every_preset_resolves_and_builds(name: str, method: str) -> None:
    config = resolve(method, "folder", "cat/dog", overrides=[f"preset={name}"])
    kind = plugins.find("method", method)
    with torch.device("meta"):
        built = kind(config.method.params, Segmenter(replace(config.model, pretrained=False)))
    assert sum(parameter.numel() for parameter in built.parameters()) > 10**6


@pytest.mark.parametrize(
    ("gpu", "device", "name", "precision"),
    [
        (None, "auto", "laptop", "fp32"),
        (CudaGpu(8), "auto", "gpu", "bf16"),
        (CudaGpu(7), "auto", "gpu", "fp16"),
        (CudaGpu(8), "cpu", "laptop", "fp32"),
        (CudaGpu(8), "mps", "laptop", "fp32"),
        (None, "cuda:1", "gpu", "bf16"),
    ],
)
def test_device_chooses(gpu, device, name, precision, monkeypatch) -> None:
    monkeypatch.setattr(presets, "cuda_gpu", lambda: gpu)
    config, (note,) = said(*FOLDER, device=device)
    assert config.train.precision == precision and note.startswith(f"Preset {name} (")
    assert config.model.backbone == presets.PRESETS[name].values["model"]["backbone"]


def test_paper_is_the_protocol_as_it_was() -> None:
    config = resolve(*FOLDER, overrides=["preset=paper"])
    assert (config.model, config.train) == (ModelConfig(), TrainConfig())
    for dataset, split in (("voc", "15-5"), ("ade20k", "100-50"), ("cityscapes", "14-1")):
        kind = plugins.find("dataset", dataset)
        asked = {"scenario": {"dataset": dataset, "split": split}, "method": {"name": "mib"}}
        paper = resolve("mib", dataset, split, overrides=["preset=paper"])
        assert paper == complete(asked) and paper.model.backbone == kind.protocol["model"]["backbone"]


def test_a_published_data_set_gets_the_preset_of_the_device_and_says_how_to_get_the_paper(
    monkeypatch,
) -> None:
    monkeypatch.setattr(presets, "cuda_gpu", lambda: None)
    config, (note,) = said("caf", "voc", "15-5")
    chosen = presets.PRESETS["laptop"].values
    assert config.model.backbone == chosen["model"]["backbone"]
    assert config.train.crop == chosen["train"]["crop"]
    assert "preset=paper" in note


def test_words_win_and_the_preset_fills_in_the_rest() -> None:
    config = resolve(*FOLDER, overrides=["model.backbone=resnet18", "train.epochs=3", "model.weights=w"])
    assert (config.model.backbone, config.train.epochs, config.train.batch_size) == ("resnet18", 3, 8)
    assert config.model.frozen_stages == 0, "the preset knows the stages of its own network alone"


def test_first_stages_are_frozen_only_if_they_have_learned() -> None:
    for word, frozen in (("weights=w", 2), ("pretrained=true", 2), ("pretrained=false", 0)):
        assert resolve(*FOLDER, overrides=[f"model.{word}"]).model.frozen_stages == frozen
    words = ["model.pretrained=true", "model.frozen_stages=0"]
    assert resolve(*FOLDER, overrides=words).model.frozen_stages == 0


def test_scenes_keeps_its_own_settings() -> None:
    for device in ("cpu", "cuda"):
        config, notes = said("mib", "scenes", "5-2", device=device)
        asked = {"scenario": {"dataset": "scenes", "split": "5-2"}, "method": {"name": "mib"}}
        assert config == complete(asked) and notes == []


def test_recipe_file_that_names_a_network_is_not_changed(tmp_path: Path) -> None:
    content = {
        "scenario": {"dataset": "voc", "split": "15-5"},
        "method": {"name": "mib"},
        "model": {"backbone": "resnet18"},
    }
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(content))
    config, notes = said(file=tmp_path / "mine.yaml")
    assert config == complete(content) and notes == []
    del content["model"]
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(content))
    assert said(file=tmp_path / "mine.yaml")[0].model.backbone == "mobilenetv2_100"
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump({**content, "preset": "paper"}))
    assert said(file=tmp_path / "mine.yaml")[0] == complete(content)
    assert resolve(file=tmp_path / "mine.yaml", overrides=["preset=gpu"]).model.backbone == "resnet50"


def test_records_store_values_and_no_preset(tmp_path: Path, monkeypatch) -> None:
    config = resolve(*FOLDER, overrides=["preset=laptop", "model.pretrained=true"])
    assert "preset" not in as_dict(config)
    (tmp_path / "recipe.yaml").write_text(to_yaml(config))
    monkeypatch.setattr(presets, "cuda_gpu", lambda: CudaGpu(8))
    again = stored_recipe(tmp_path)
    assert recipe_hash(again) == recipe_hash(config), "whatever machine reads it"
    assert differences(as_dict(again), as_dict(config)) == []


@pytest.mark.parametrize(("side", "crop"), [(400, 256), (256, 256), (200, 192), (20, 32)])
def test_crop_is_no_larger_than_images_of_ones_own(side: int, crop: int, tmp_path: Path) -> None:
    root = write_folder(tmp_path / "mine", {f"i{k}": [0, 1] for k in range(5)}, "background\ncat\n")
    for path in (root / "images").iterdir():
        Image.fromarray(np.zeros((side, side + 50, 3), np.uint8)).save(path)
    assert resolve("caf", "folder", "cat", overrides=[f"data.root={root}"]).train.crop == crop
    words = [f"data.root={root}", "train.crop=64"]
    assert resolve("caf", "folder", "cat", overrides=words).train.crop == 64


def test_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(UserError, match=r"no preset 'labtop'.*laptop"):
        resolve(*FOLDER, overrides=["preset=labtop"])


def test_random_weights_have_to_be_meant() -> None:
    with pytest.raises(UserError) as refused:
        check_weights(resolve(*FOLDER).model)
    for remedy in ("model.weights=FILE", "model.pretrained=true", "model.pretrained=false"):
        assert remedy in str(refused.value)
    for word in ("weights=w", "pretrained=true", "pretrained=false"):
        check_weights(resolve(*FOLDER, overrides=[f"model.{word}"]).model)
    check_weights(resolve("caf", "scenes", "5-2").model)


def test_train_stops_without_weights_and_show_names_the_preset(segue, tmp_path: Path) -> None:
    root = write_folder(tmp_path / "mine", {f"i{k}": [0, 1, 2] for k in range(9)}, "background\ncat\ndog\n")
    words = ("caf", "--on", "folder", "--split", "cat/dog", f"data.root={root}")
    code, _, err = segue("train", *words, "--out", tmp_path / "run")
    assert code == 2 and "model.pretrained=false" in err and not (tmp_path / "run").exists()
    code, out, err = segue("show", *words)
    assert code == 0 and out.startswith("# Preset laptop (") and "model.pretrained=true" in err
    (tmp_path / "shown.yaml").write_text(out)
    assert resolve(file=tmp_path / "shown.yaml") == resolve(*words[:1], "folder", "cat/dog", None, words[5:])
