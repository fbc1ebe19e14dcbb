"""Twins: what they replace, what a merge keeps, and what a channel takes in training."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from segue.core.config import ModelConfig
from segue.core.scenario import Step
from segue.models.segmenter import Segmenter
from segue.models.twins import Twins, add_twins, merge_twins

MODELS = {
    "tiny": ModelConfig(backbone="tiny", head="tiny", output_stride=8),
    "resnet10t": ModelConfig(backbone="resnet10t", head="tiny", output_stride=32),
    "mobilenetv2": ModelConfig(backbone="mobilenetv2_035", head="tiny", output_stride=32, stages=5),
}


def trained(model: Segmenter) -> Segmenter:
    """Twins that differ, and norms that have seen something."""
    generator = torch.Generator().manual_seed(1)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            for value in (module.weight, module.running_var):
                value.data = 0.5 + torch.rand(value.shape, generator=generator)
            for value in (module.bias, module.running_mean):
                value.data = torch.randn(value.shape, generator=generator) / 4
        if isinstance(module, Twins):
            module.right.weight.data += torch.randn(module.right.weight.shape, generator=generator) / 20
    return model.eval()


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_a_merged_network_is_the_plain_one_and_gives_the_same_logits(name: str) -> None:
    model = Segmenter(MODELS[name])
    model.grow(Step(0, (1, 2)), balanced=False)
    plain = {key: value.shape for key, value in model.state_dict().items()}
    assert len(add_twins(model, model.backbone, model._maps)) >= 3
    twinned = trained(model)
    images = torch.randint(0, 256, (2, 3, 64, 64), generator=torch.Generator().manual_seed(0))
    expected = twinned(images).logits
    merged = copy.deepcopy(twinned)
    merge_twins(merged, merged._maps)
    assert {key: value.shape for key, value in merged.state_dict().items()} == plain
    torch.testing.assert_close(merged(images).logits, expected, rtol=1e-9, atol=1e-9)
    assert merged.spec() == twinned.spec()


@torch.no_grad()
def test_what_both_were_goes_into_the_left_one() -> None:
    model = Segmenter(MODELS["tiny"])
    add_twins(model, model.backbone, model._maps)
    twins = next(module for module in trained(model).modules() if isinstance(module, Twins))
    x = torch.randn(1, 3, 16, 16)
    both = twins(x)
    twins.merge_into_left()
    torch.testing.assert_close(twins.left_norm(twins.left(x)), both, rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_a_channel_takes_one_of_them_or_both_in_training() -> None:
    conv, norm = nn.Conv2d(3, 300, 3, bias=False), nn.BatchNorm2d(300)
    twins = Twins(conv, norm, "norm")
    twins.right.weight.mul_(-3)
    twins.left_norm.eval(), twins.right_norm.eval()
    x = torch.randn(1, 3, 8, 8)
    left, right = (n(c(x)) for n, c in ((twins.left_norm, twins.left), (twins.right_norm, twins.right)))
    out = twins(x)
    share = (out - right).flatten(2).sum(2) / (left - right).flatten(2).sum(2)
    counts = [int(torch.isclose(share, torch.tensor(value)).sum()) for value in (0.0, 0.5, 1.0)]
    assert sum(counts) == 300 and min(counts) > 60


def test_frozen_stages_have_no_twins() -> None:
    model = Segmenter(ModelConfig(backbone="tiny", head="tiny", output_stride=8, frozen_stages=2))
    assert add_twins(model, model.backbone, model._maps) == ["backbone.stages.2.0", "backbone.stages.3.0"]
