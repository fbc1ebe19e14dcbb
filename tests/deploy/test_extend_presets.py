"""Presets of an extension: the network and image size are the model's own."""

from __future__ import annotations

from dataclasses import replace

from segue.core.config import ModelConfig, as_dict
from segue.core.scenario import Step
from segue.deploy.extend import recipe_of
from segue.deploy.history import History
from segue.deploy.model import Model
from segue.deploy.prepare import Preparation
from segue.models.segmenter import Segmenter


def a_model() -> Model:
    network = Segmenter(ModelConfig("tiny", "tiny", 8))
    network.grow(Step(0, (1, 2)), balanced=False)
    return Model(network, ("background", "cat", "dog"), Preparation(size=48))


def test_a_model_without_a_run_gets_the_preset_of_the_device() -> None:
    laptop = recipe_of(a_model(), "birds", ("bird",), None, [], device="cpu")
    assert (laptop.train.crop, laptop.train.batch_size, laptop.model.backbone) == (48, 8, "tiny")
    words = ["preset=gpu", "train.epochs=2"]
    train = recipe_of(a_model(), "birds", ("bird",), None, words, device="cpu").train
    assert (train.batch_size, train.precision, train.epochs) == (16, "bf16", 2)


def test_settings_of_a_run_stay_unless_a_preset_is_said() -> None:
    stored = as_dict(recipe_of(a_model(), "birds", ("bird",), None, [], device="cpu"))
    stored["train"] |= {"batch_size": 5, "epochs_next": 3}
    model = replace(a_model(), history=History((("cat", "dog"),), stored))
    train = recipe_of(model, "birds", ("bird",), None, [], device="cuda").train
    assert (train.batch_size, train.epochs_of(1)) == (5, 3)
    train = recipe_of(model, "birds", ("bird",), None, ["preset=gpu"], device="cpu").train
    assert (train.batch_size, train.epochs_of(1)) == (16, 30)
