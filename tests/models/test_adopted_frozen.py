"""The frozen encoder of an adopted network: nothing of it changes, and a known answer takes its place."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from foreign_networks import CLASSES, MEAN, NETWORKS, STD, network, pictures

import segue
from segue.core.errors import UserError
from segue.models._speed.frozen import known_maps
from segue.models.adopted.network import AdoptedNetwork


def frozen(name: str, stages: int | None = None) -> AdoptedNetwork:
    """An adopted network whose encoder is frozen, with the channels that it came with."""
    adopted = segue.adopt(network(name), CLASSES, MEAN, STD).network
    assert isinstance(adopted, AdoptedNetwork)
    count = adopted.parts.stages if stages is None else stages
    config = replace(adopted.config, frozen_stages=count)
    return AdoptedNetwork.with_rows(config, copy.deepcopy(network(name)))


@pytest.mark.parametrize("name", NETWORKS)
def test_a_known_answer_takes_the_place_of_the_encoder(name: str) -> None:
    model, images = frozen(name).train(), pictures(64, 96)
    assert model.begins_after_frozen and model.training, "whatever is dropped in training"
    model.eval()
    with torch.no_grad():
        expected, maps = model(images), model.frozen_maps(images)
        with known_maps(images, maps):
            found = model(images)
        with known_maps(images, tuple(torch.zeros_like(each) for each in maps)):
            other = model(images)
    assert torch.equal(found.logits, expected.logits)
    assert not torch.equal(other.logits, expected.logits), "the encoder did not run"
    for key, value in expected.features.items():
        assert torch.equal(found.features[key], value)
    assert [stage.shape for stage in found.stages] == [stage.shape for stage in expected.stages]
    assert torch.equal(model(images).logits, expected.logits), "afterwards it runs again"


@pytest.mark.parametrize("name", NETWORKS)
def test_nothing_of_the_encoder_is_trained(name: str) -> None:
    model, images = frozen(name).train(), pictures(64, 96)
    before = model.encode(images)[-1].detach()
    model(images).logits.square().mean().backward()
    assert all(parameter.grad is None for parameter in model.encoder_parameters())
    assert any(parameter.grad is not None for parameter in model.classifier.parameters())
    assert torch.equal(model.encode(images)[-1], before), "neither dropout nor statistics of batches"


def test_an_encoder_is_frozen_as_a_whole() -> None:
    with pytest.raises(UserError, match="frozen_stages=5, or 0"):
        frozen("smp FPN", 2)
