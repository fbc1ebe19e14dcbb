"""EWC, PI, RW: the penalty's gradient and the task's never mix."""

from __future__ import annotations

import pytest
import torch
from step_one import StepOne, state_of, step_one
from torch import Tensor

from segue.core import plugins
from segue.losses import cross_entropy
from segue.testing import OPTIM, Bench

METHODS = {"ewc": 500.0, "pi": 500.0, "rw": 100.0}
"""method -> weight"""
OFTEN = {"ewc": {}, "pi": {}, "rw": {"every": 2}}
"""so that few iterations are enough"""


def moved(name: str, params: dict | None = None) -> StepOne:
    """The second step, with parameters away from their anchors."""
    made = step_one(name, {**OFTEN[name], **(params or {})}, first=4, updates=0)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in made.method.parameters():
            parameter += 0.01 * torch.randn(parameter.shape, generator=generator)
    return made


def gradients(made: StepOne) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in made.method.model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("name", METHODS)
def test_penalty_is_reported_and_not_differentiated(name: str) -> None:
    made = moved(name)
    method, batch = made.method, made.bench.batch(made.step, 0)
    tracker, weight = method.importance, METHODS[name]
    terms = method(batch)
    assert list(terms) == ["ce", "penalty"] and not terms["penalty"].requires_grad
    torch.testing.assert_close(terms["ce"], cross_entropy(method.model(batch.images).logits, batch.labels))
    distance = sum(
        (tracker.weight[key] * (p.detach() - tracker.anchor[key]).square()).sum()
        for key, p in made.method.model.named_parameters()
        if key in tracker.anchor
    )
    torch.testing.assert_close(terms["penalty"], weight * distance)
    assert terms["penalty"] > 0


@pytest.mark.parametrize("name", METHODS)
def test_optimiser_gets_the_gradient_of_task_and_penalty(name: str) -> None:
    made = moved(name)
    method, batch = made.method, made.bench.batch(made.step, 0)
    tracker, parameters = method.importance, dict(method.model.named_parameters())
    cross_entropy(method.model(batch.images).logits, batch.labels).backward()
    task = gradients(made)
    method.zero_grad()
    sum(method(batch).values()).backward()
    for key, value in gradients(made).items():  # the penalty adds nothing yet
        torch.testing.assert_close(value, task[key], rtol=1e-4, atol=1e-6)
    method.after_backward()
    free = [key for key in parameters if key not in tracker.anchor]
    assert free == ["classifier.parts.1.weight", "classifier.parts.1.bias"]
    held = 0.0
    for key, value in parameters.items():
        extra = torch.zeros_like(value)
        if key not in free:
            away = value.detach() - tracker.anchor[key]
            assert torch.equal(tracker.anchor[key], dict(made.before.named_parameters())[key])
            extra = METHODS[name] * 2 * tracker.weight[key] * away
        torch.testing.assert_close(value.grad, task[key] + extra, rtol=1e-4, atol=1e-5)
        held = max(held, extra.abs().max().item())
    assert held > 0.1


@pytest.mark.parametrize("name", METHODS)
def test_importance_is_taken_from_the_tasks_gradient_alone(name: str) -> None:
    """After one iteration from the same weights it is that of a run without any penalty."""
    runs = [moved(name), moved(name, {"weight": 0})]
    for made in runs:
        assert all(
            torch.equal(ours, theirs)
            for ours, theirs in zip(runs[0].method.parameters(), made.method.parameters(), strict=True)
        )
    before = state_of(runs[0].method.importance)
    for made in runs:
        made.bench.train(made.session, made.step, range(1))
    penalised, plain = (state_of(made.method.importance) for made in runs)
    assert all(torch.equal(penalised[key], value) for key, value in plain.items())
    assert any(not torch.equal(penalised[key], value) for key, value in before.items())
    weights = [state_of(made.method.model)["backbone.stages.0.0.weight"] for made in runs]
    assert not torch.equal(*weights)


@pytest.mark.parametrize("name", METHODS)
def test_first_step_has_no_penalty(name: str) -> None:
    bench = Bench(plugins.find("method", name), {})
    method, step = bench.method(), bench.scenario[0]
    bench.begin(method, step)
    terms = method(bench.batch(step, 0))
    assert list(terms) == ["ce"]
    terms["ce"].backward()
    before = [parameter.grad.clone() for parameter in method.parameters()]
    method.after_backward()
    assert all(torch.equal(p.grad, old) for p, old in zip(method.parameters(), before, strict=True))


@pytest.mark.parametrize("name", METHODS)
def test_every_parameter_of_the_network_is_tracked_and_no_buffer(name: str) -> None:
    made = step_one(name, updates=0)
    names = {key.replace(".", "/") for key, _ in made.method.model.named_parameters()}
    tracked = {key.split(".")[-1] for key in made.method.importance.state_dict() if "extra_state" not in key}
    assert tracked == names and "backbone/stages/0/1/0/bias" in names  # of a norm
    anchored = {key.replace(".", "/") for key, _ in made.before.named_parameters()}
    assert set(made.method.importance.anchor.state_dict()) == anchored < names


@pytest.mark.parametrize("name", METHODS)
def test_penalty_holds_the_network_back(name: str) -> None:
    """A strong penalty leaves important parameters nearer to where they were."""
    away = []
    for weight in (0.0, METHODS[name]):
        made = step_one(name, {**OFTEN[name], "weight": weight}, first=4, updates=0)
        for group in made.session.optimizer.param_groups:
            group.update(momentum=0.0, nesterov=False, weight_decay=0.0, lr=OPTIM.lr_next / 10)
        made.bench.train(made.session, made.step, range(4))
        away.append(made.method.importance.penalty(dict(made.method.model.named_parameters())).item())
    assert 0 < away[1] < away[0]


def test_settings_reach_the_trackers() -> None:
    for name in ("ewc", "rw"):
        tracker = Bench(plugins.find("method", name), {"alpha": 0.3}).method().importance
        assert getattr(tracker, "information", tracker).alpha == 0.3
    assert Bench(plugins.find("method", "rw"), {"every": 4}).method().importance.every == 4
