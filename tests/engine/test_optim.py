"""One optimiser per step: its groups, its learning rates, its schedule."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tiny_runs import ITERATIONS, log_lines, recipe

from segue.core.config import ModelConfig, OptimConfig, TrainConfig
from segue.core.errors import UserError
from segue.core.scenario import Step
from segue.engine import optim as optim_module
from segue.engine.optim import build_optimizer, has_fused_sgd, set_learning_rate
from segue.engine.train import Session
from segue.methods.base import Method
from segue.methods.caf import CAF
from segue.methods.finetune import FineTune
from segue.models.segmenter import Segmenter
from segue.testing import Bench

FIRST, NEXT = Step(0, (1, 2)), Step(1, (3,), (1, 2))
OPTIM = OptimConfig(lr_first=0.1, lr_next=0.01, head_factor=5.0, layer_factor=3.0)


def method(kind: type[Method], frozen_stages: int = 0) -> Method:
    config = ModelConfig(backbone="tiny", head="tiny", output_stride=8, frozen_stages=frozen_stages)
    built = kind(kind.Config(), Segmenter(config))
    built.grow(FIRST)
    return built


def test_poly_schedule():
    optimizer = torch.optim.SGD(
        [{"params": [torch.zeros(1)], "base_lr": 0.1}, {"params": [torch.zeros(1)], "base_lr": 0.5}], lr=9.0
    )
    rates = []
    for iteration in (0, 25, 50, 99):
        set_learning_rate(optimizer, iteration, 100, 0.9)
        rates.append([group["lr"] for group in optimizer.param_groups])
    expected = [0.1, 0.1 * 0.75**0.9, 0.1 * 0.5**0.9, 0.1 * 0.01**0.9]
    assert [rate for rate, _ in rates] == pytest.approx(expected)
    assert [rate for _, rate in rates] == pytest.approx([5 * rate for rate in expected])
    assert rates[2][0] == pytest.approx(0.0535887, rel=1e-5)


def test_power_zero_is_a_constant_rate():
    optimizer = torch.optim.SGD([{"params": [torch.zeros(1)], "base_lr": 0.1}], lr=9.0)
    set_learning_rate(optimizer, 99, 100, 0.0)
    assert optimizer.param_groups[0]["lr"] == 0.1


def test_groups_have_their_factors():
    built = method(CAF)
    groups = {group["name"]: group for group in build_optimizer(built, OPTIM, FIRST).param_groups}
    assert {name: group["lr"] for name, group in groups.items()} == pytest.approx(
        {"backbone": 0.1, "head": 0.5, "layer": 0.3}
    )
    assert all(group["base_lr"] == group["lr"] for group in groups.values())
    owners = {
        "backbone": built.model.backbone.parameters(),
        "head": [*built.model.refiner.parameters(), *built.model.classifier.parameters()],
        "layer": built.model.fusion.parameters(),
    }
    for name, parameters in owners.items():
        assert {id(p) for p in groups[name]["params"]} == {id(p) for p in parameters}, name


@pytest.mark.parametrize(("factor", "expected"), [(None, 0.5), (20.0, 2.0)])
def test_new_classifiers_have_their_own_factor_in_later_steps(factor, expected):
    built = method(FineTune)
    config, second = replace(OPTIM, new_factor=factor, lr_next=0.1), NEXT
    assert "new" not in {group["name"] for group in build_optimizer(built, config, FIRST).param_groups}
    built.grow(second)
    groups = {group["name"]: group for group in build_optimizer(built, config, second).param_groups}
    assert groups["new"]["lr"] == pytest.approx(expected) and groups["head"]["lr"] == pytest.approx(0.5)
    newest = {id(p) for p in built.model.classifier.parts[-1].parameters()}
    assert {id(p) for p in groups["new"]["params"]} == newest
    assert not newest & {id(p) for p in groups["head"]["params"]}


def test_every_trainable_parameter_is_in_one_group():
    built = method(CAF)
    listed = [id(p) for group in build_optimizer(built, OPTIM, FIRST).param_groups for p in group["params"]]
    assert sorted(listed) == sorted(id(p) for p in built.parameters())


def test_settings_reach_sgd():
    config = OptimConfig(momentum=0.7, weight_decay=0.03, nesterov=True)
    for group in build_optimizer(method(FineTune), config, FIRST).param_groups:
        assert (group["momentum"], group["weight_decay"], group["nesterov"]) == (0.7, 0.03, True)


def test_nesterov_without_momentum_is_plain_sgd():
    optimizer = build_optimizer(method(FineTune), OptimConfig(momentum=0.0), FIRST)
    assert [group["nesterov"] for group in optimizer.param_groups] == [False, False]


def test_frozen_stages_are_not_in_the_optimiser():
    built = method(FineTune, frozen_stages=2)
    groups = {group["name"]: group["params"] for group in build_optimizer(built, OPTIM, FIRST).param_groups}
    assert len(groups["backbone"]) == 6, "two of four stages: convolution, scale and shift each"
    assert all(parameter.requires_grad for parameter in groups["backbone"])


def test_nothing_to_train():
    built = method(FineTune)
    built.requires_grad_(False)
    with pytest.raises(UserError, match="every parameter is frozen"):
        build_optimizer(built, OPTIM, FIRST)


def test_each_step_has_a_fresh_optimiser_with_its_own_rate():
    bench = Bench(FineTune, {})
    built, first, following = bench.method(), bench.scenario[0], bench.scenario[1]
    before = bench.begin(built, first)
    bench.train(before, first, range(1))
    assert before.optimizer.state, "momentum after an update"
    built.grow(following)
    train = TrainConfig(batch_size=4, crop=32)
    after = Session.start(built, following, OPTIM, train, torch.device("cpu"), torch.Generator())
    assert not after.optimizer.state
    assert {group["name"]: group["lr"] for group in after.optimizer.param_groups} == pytest.approx(
        {"backbone": 0.01, "head": 0.05, "new": 0.05}
    )
    listed = {id(p) for group in after.optimizer.param_groups for p in group["params"]}
    assert {id(p) for p in built.model.classifier.parameters()} <= listed, "the new classifiers learn too"


# The fused optimiser


def moved(fused: bool, monkeypatch: pytest.MonkeyPatch, resumed: bool = False, dense: bool = False) -> list:
    """Channels-last weights after four updates: dense gradients, resumed, a part without one at first."""
    monkeypatch.setattr(optim_module, "has_fused_sgd", lambda _: fused)
    torch.manual_seed(0)
    built = method(FineTune).to(memory_format=torch.channels_last)
    optimizer = build_optimizer(built, OPTIM, FIRST)
    for iteration in range(4):
        for number, parameter in enumerate(built.parameters()):
            parameter.grad = torch.randn(parameter.shape)
            if not dense:
                parameter.grad = torch.empty_like(parameter).copy_(parameter.grad)
            if number % 3 == 0 and iteration in (0, 2):
                parameter.grad = None
        optimizer.step()
        if resumed and iteration == 1:
            state = optimizer.state_dict()
            for each in state["state"].values():
                each["momentum_buffer"] = each["momentum_buffer"].contiguous()
            optimizer = build_optimizer(built, OPTIM, FIRST)
            optimizer.load_state_dict(state)
    assert all(group["fused"] == (fused or None) for group in optimizer.param_groups)
    return [parameter.detach() for parameter in built.parameters()]


@pytest.mark.precision("float64")
@pytest.mark.parametrize(("resumed", "dense"), [(False, False), (True, False), (False, True), (True, True)])
def test_fused_updates_are_the_plain_ones(resumed: bool, dense: bool, monkeypatch: pytest.MonkeyPatch):
    """Fused kernels ignore strides: momentum from a checkpoint and odd gradients are laid out before."""
    plain, ours = (moved(fused, monkeypatch, resumed, dense) for fused in (False, True))
    torch.testing.assert_close(ours, plain, rtol=1e-12, atol=1e-12)


def test_a_device_without_fused_sgd_has_the_plain_one():
    assert has_fused_sgd(torch.device("cpu"))
    assert not has_fused_sgd(torch.device("meta"))


@pytest.mark.parametrize("value", [1.0, float("inf")])
def test_fused_updates_go_with_a_gradient_scaler(value: float):
    built = method(FineTune)
    optimizer = build_optimizer(built, OPTIM, FIRST)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    before = [parameter.detach().clone() for parameter in built.parameters()]
    scaler.scale(sum(parameter.sum() for parameter in built.parameters()) * value).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    for old, parameter in zip(before, built.parameters(), strict=True):
        assert torch.equal(old, parameter) == (value == float("inf")), "an overflow moves nothing"
    assert scaler.get_scale() == (8.0 if value == 1.0 else 4.0)


def test_the_log_shows_the_schedule_of_both_steps(finished):
    optim = recipe("mib").optim
    lines = log_lines(finished("mib"))
    assert [(line["step"], line["iteration"]) for line in lines] == [
        *((0, iteration) for iteration in (2, 4, 6, 8, 9)),
        *((1, iteration) for iteration in (2, 4, 6)),
    ]
    for line in lines:
        base = (optim.lr_first, optim.lr_next)[line["step"]]
        done = (line["iteration"] - 1) / ITERATIONS[line["step"]]
        assert line["lr"] == pytest.approx(base * (1 - done) ** 0.9), line
    assert [line["epoch"] for line in lines] == [0, 1, 1, 2, 2, 0, 1, 2]
