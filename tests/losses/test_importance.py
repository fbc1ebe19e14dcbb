"""Trackers of importance: steps by hand, gradients that are missing or not finite, new parameters, state."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from segue.losses import Fisher, PathIntegral, RiemannianWalk
from segue.losses.importance import NORM_EPS, WALK_EPS, Importance, Tensors, min_max

TRACKERS: dict[str, Callable[[], Importance]] = {
    "ewc": Fisher,
    "pi": PathIntegral,
    "rw": lambda: RiemannianWalk(every=1),
}
Weights = dict[str, nn.Parameter]


def weights(**values: list[float]) -> Weights:
    return {name: nn.Parameter(torch.tensor(value).double()) for name, value in values.items()}


def started(name: str, parameters: Weights) -> Importance:
    tracker = TRACKERS[name]()
    tracker.begin_step(parameters, first=True)
    tracker.grow(parameters)
    return tracker


def iterate(tracker: Importance, parameters: Weights, gradient: Tensor | float, rate: float = 0.1) -> None:
    """One iteration of plain descent with this gradient, the same for all parameters."""
    for value in parameters.values():
        value.grad = torch.zeros_like(value) + gradient
    tracker.update(parameters)
    with torch.no_grad():
        for value in parameters.values():
            if torch.isfinite(value.grad).all():
                value -= rate * value.grad


def state(tracker: Importance) -> dict[str, Tensor]:
    return copy.deepcopy(tracker.state_dict())


def same(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        assert torch.equal(ours[name], value), name


# By hand


def test_min_max_is_within_0_and_1() -> None:
    values = torch.randn(5, 7, generator=torch.Generator().manual_seed(0)) * 100
    scaled = min_max(values)
    assert scaled.shape == (5, 7) and scaled.min() == 0 and scaled.max().item() == pytest.approx(1)
    assert torch.equal(scaled.flatten().argsort(), values.flatten().argsort())
    assert torch.equal(min_max(torch.full((3,), 7.0)), torch.zeros(3))  # all alike: none matters more
    tiny = torch.tensor([0.0, 1e-8, 3e-8]).double()
    torch.testing.assert_close(min_max(tiny), tiny / (3e-8 + NORM_EPS))


def test_fisher_starts_at_one_and_gives_the_newest_gradient_nine_tenths() -> None:
    parameters = weights(a=[1.0, 2.0])
    tracker = started("ewc", parameters)
    assert tracker.fisher["a"].tolist() == [1, 1]
    iterate(tracker, parameters, torch.tensor([2.0, 0.0]))
    assert tracker.fisher["a"].tolist() == pytest.approx([0.9 * 4 + 0.1, 0.1])
    iterate(tracker, parameters, torch.tensor([0.0, 3.0]))
    assert tracker.fisher["a"].tolist() == pytest.approx([0.37, 0.9 * 9 + 0.01])
    slow = Fisher(alpha=0.25)
    slow.grow(parameters)
    iterate(slow, parameters, 2.0)
    assert slow.fisher["a"].tolist() == pytest.approx([0.25 * 4 + 0.75] * 2)


def test_path_integral_by_hand_adds_up_over_steps() -> None:
    parameters = weights(a=[1.0])
    tracker = started("pi", parameters)
    for gradient in (2.0, 1.0, 1.0):  # 1, 0.8, 0.7 and 0.6 in the end
        iterate(tracker, parameters, gradient)
    tracker.end_step(parameters)
    # 1 * 0.2 + 1 * 0.1 over a distance of 0.4; the last move has no gradient after it
    assert tracker.score["a"].item() == pytest.approx(0.3 / 0.4**2)
    tracker.begin_step(parameters, first=False)
    tracker.grow(parameters)
    assert tracker.gain["a"].item() == 0 and tracker.start["a"].item() == pytest.approx(0.6)
    for gradient in (1.0, 4.0):  # 0.6, 0.5, 0.1
        iterate(tracker, parameters, gradient)
    tracker.end_step(parameters)
    assert tracker.score["a"].item() == pytest.approx(0.3 / 0.4**2 + 4 * 0.1 / 0.5**2)


def test_a_way_that_raised_the_loss_has_no_importance() -> None:
    for name in ("pi", "rw"):
        parameters = weights(a=[1.0])
        tracker = started(name, parameters)
        iterate(tracker, parameters, 1.0)
        iterate(tracker, parameters, -1.0)  # the loss rises where it moved to
        assert tracker.gain["a"].item() < 0
        tracker.end_step(parameters)
        assert tracker.score["a"].item() == 0


def test_walk_by_hand_averages_over_steps() -> None:
    parameters = weights(a=[1.0])
    tracker = started("rw", parameters)
    iterate(tracker, parameters, 1.0)  # nothing has moved; the Fisher is 0.9 + 0.1 = 1 after it
    iterate(tracker, parameters, 2.0)  # moved by 0.1
    gain = 2 * 0.1 / (0.5 * 1 * 0.1**2 + WALK_EPS)
    assert tracker.gain["a"].item() == pytest.approx(gain)
    tracker.end_step(parameters)
    assert tracker.score["a"].item() == pytest.approx(gain)  # the first step has nothing to average with
    fisher = tracker.information.fisher["a"].item()
    assert fisher == pytest.approx(0.9 * 4 + 0.1)
    tracker.begin_step(parameters, first=False)
    tracker.grow(parameters)
    iterate(tracker, parameters, 1.0)
    next_fisher = 0.9 + 0.1 * fisher
    iterate(tracker, parameters, 1.0)
    next_gain = 0.1 / (0.5 * next_fisher * 0.1**2 + WALK_EPS)
    tracker.end_step(parameters)
    assert tracker.score["a"].item() == pytest.approx((gain + next_gain) / 2)


def test_walk_measures_every_few_iterations() -> None:
    parameters = weights(a=[1.0])
    tracker = RiemannianWalk(every=3)
    tracker.grow(parameters)
    gains = []
    for _ in range(7):
        iterate(tracker, parameters, 1.0)
        gains.append(tracker.gain["a"].item())
    assert gains[0] == gains[2] == 0 < gains[3] == gains[5] < gains[6]
    # a constant gradient keeps the Fisher at 1: three moves of 0.1 at once
    assert gains[3] == pytest.approx(0.3 / (0.5 * 0.3**2 + WALK_EPS))


def test_walk_weighs_by_fisher_and_score_together() -> None:
    parameters = weights(a=[1.0, 1.0, 1.0])
    tracker = started("rw", parameters)
    for _ in range(2):
        iterate(tracker, parameters, torch.tensor([1.0, 2.0, 3.0]))
    tracker.end_step(parameters)
    expected = min_max(tracker.information.fisher["a"]) + min_max(tracker.score["a"])
    assert torch.equal(tracker.normalised("a"), expected) and not torch.equal(expected, expected * 0)


# Penalty


@pytest.mark.parametrize("name", TRACKERS)
def test_penalty_holds_old_parameters_and_leaves_new_ones_free(name: str) -> None:
    parameters = weights(a=[1.0, 2.0, 4.0])
    tracker = started(name, parameters)
    for gradient in ([1.0, 2.0, 3.0], [3.0, 1.0, 4.0]):
        iterate(tracker, parameters, torch.tensor(gradient))
    tracker.end_step(parameters)
    assert tracker.penalty(parameters).item() == 0 and not list(tracker.anchor.buffers())
    tracker.begin_step(parameters, first=False)
    weight = tracker.normalised("a")
    parameters |= weights(b=[5.0])
    tracker.grow(parameters)
    assert "b" not in tracker.anchor and torch.equal(tracker.weight["a"], weight) and weight.max() > 0.9
    with torch.no_grad():
        parameters["a"] += torch.tensor([1.0, -2.0, 3.0])
        parameters["b"] += 7.0
    expected = (weight * torch.tensor([1.0, 4.0, 9.0])).sum()
    assert tracker.penalty(parameters).item() == pytest.approx(expected.item())
    for value in parameters.values():
        value.grad = torch.ones_like(value)
    tracker.add_penalty_gradient(parameters, 10.0)
    torch.testing.assert_close(
        parameters["a"].grad, 1 + 10 * 2 * weight * torch.tensor([1.0, -2.0, 3.0]).double()
    )
    assert parameters["b"].grad.tolist() == [1]


@pytest.mark.parametrize("name", TRACKERS)
def test_weight_is_that_of_the_steps_before_while_the_step_runs(name: str) -> None:
    parameters = weights(a=[1.0, 2.0])
    tracker = started(name, parameters)
    iterate(tracker, parameters, torch.tensor([1.0, 2.0]))
    iterate(tracker, parameters, torch.tensor([3.0, 2.0]))
    tracker.end_step(parameters)
    tracker.begin_step(parameters, first=False)
    tracker.grow(parameters)
    weight, anchor = tracker.weight["a"].clone(), tracker.anchor["a"].clone()
    iterate(tracker, parameters, torch.tensor([5.0, 0.0]))
    tracker.end_step(parameters)
    assert torch.equal(tracker.weight["a"], weight) and torch.equal(tracker.anchor["a"], anchor)
    assert not torch.equal(parameters["a"], anchor)  # the anchor is a copy
    tracker.begin_step(parameters, first=False)
    assert torch.equal(tracker.anchor["a"], parameters["a"])


# Gradients that are missing or not finite


def break_one(parameters: Weights, bad: float) -> None:
    """Gradients of which a single number is not finite."""
    for value in parameters.values():
        value.grad = torch.ones_like(value)
    parameters["b"].grad[0] = bad


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", TRACKERS)
def test_bad_gradient_adds_nothing(name: str, bad: float) -> None:
    parameters = weights(a=[1.0, 2.0], b=[3.0])
    tracker = started(name, parameters)
    for gradient in (1.0, 2.0):
        iterate(tracker, parameters, gradient)
    gathered = {"fisher", "gain", "score", "start", "previous"}
    before = {key: value for key, value in state(tracker).items() if set(key.split(".")) & gathered}
    assert before
    break_one(parameters, bad)
    tracker.update(parameters)
    same({key: state(tracker)[key] for key in before}, before)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", TRACKERS)
def test_after_a_bad_gradient_all_goes_on_as_without_it(name: str, bad: float) -> None:
    """Half precision overflows now and then, and the optimiser then stays where it is."""
    states = []
    for broken in (False, True):
        parameters = weights(a=[1.0, 2.0], b=[3.0])
        tracker = started(name, parameters)
        for gradient in (1.0, 2.0):
            iterate(tracker, parameters, gradient)
        if broken:
            break_one(parameters, bad)
            tracker.update(parameters)
        for gradient in (3.0, 1.0):
            iterate(tracker, parameters, gradient)
        tracker.end_step(parameters)
        states.append({key: value for key, value in state(tracker).items() if "extra_state" not in key})
    same(*states)


@pytest.mark.parametrize("name", TRACKERS)
def test_parameter_without_gradient_keeps_its_importance(name: str) -> None:
    parameters = weights(a=[1.0], b=[3.0])
    tracker = started(name, parameters)
    before = state(tracker)
    for _ in range(3):
        iterate(tracker, {"a": parameters["a"]}, 2.0)
        tracker.update(parameters)
    tracker.end_step(parameters)
    after = state(tracker)
    assert [key for key in after if key.endswith(".b")]
    for key in after:
        assert key.endswith(".a") or key.endswith("extra_state") or torch.equal(before[key], after[key]), key
    assert any(not torch.equal(before[key], after[key]) for key in after if key.endswith(".a"))
    tracker.begin_step(parameters, first=False)
    with torch.no_grad():
        parameters["b"] += 1.0
    tracker.add_penalty_gradient(parameters, 1.0)
    assert parameters["b"].grad is None


@pytest.mark.parametrize("name", TRACKERS)
def test_nothing_with_gradients_is_no_error(name: str) -> None:
    parameters = weights(a=[1.0])
    tracker = started(name, parameters)
    before = state(tracker)
    tracker.update(parameters)
    same(
        {key: value for key, value in state(tracker).items() if "extra_state" not in key},
        {key: value for key, value in before.items() if "extra_state" not in key},
    )


# State


def test_names_with_dots_are_kept_apart() -> None:
    tensors = Tensors()
    tensors["a.b.weight"], tensors["a.b"] = torch.ones(2, requires_grad=True), torch.zeros(1)
    assert "a.b.weight" in tensors and "a" not in tensors
    assert tensors["a.b.weight"].tolist() == [1, 1] and not tensors["a.b.weight"].requires_grad
    assert set(tensors.state_dict()) == {"a/b/weight", "a/b"}


@pytest.mark.parametrize("name", TRACKERS)
def test_shape_of_the_state_follows_from_growing_and_a_loaded_one_goes_on_alike(name: str) -> None:
    parameters = weights(**{"layer.a": [1.0, 2.0]})
    tracker = started(name, parameters)
    iterate(tracker, parameters, 1.0)
    tracker.end_step(parameters)
    tracker.begin_step(parameters, first=False)
    parameters |= weights(**{"layer.b": [5.0]})
    tracker.grow(parameters)
    iterate(tracker, parameters, 2.0)

    blank = weights(**{"layer.a": [0.0, 0.0]})
    other = started(name, blank)
    assert other.state_dict().keys() != tracker.state_dict().keys()
    other.begin_step(blank, first=False)
    blank |= weights(**{"layer.b": [0.0]})
    other.grow(blank)
    other.load_state_dict(state(tracker), strict=True)
    same(state(other), state(tracker))
    followed = {key: nn.Parameter(value.detach().clone()) for key, value in parameters.items()}
    for each, followed_weights in ((tracker, parameters), (other, followed)):
        iterate(each, followed_weights, 3.0)
        each.end_step(followed_weights)
    same(state(other), state(tracker))


def test_walks_rhythm_survives_a_checkpoint() -> None:
    parameters = weights(a=[1.0])
    tracker = RiemannianWalk(every=3)
    tracker.grow(parameters)
    for _ in range(2):
        iterate(tracker, parameters, 1.0)
    other = RiemannianWalk(every=3)
    other.grow(parameters)
    other.load_state_dict(state(tracker), strict=True)
    assert other.iteration == 2
    for _ in range(2):
        kept = {key: nn.Parameter(value.detach().clone()) for key, value in parameters.items()}
        iterate(other, kept, 1.0)
        iterate(tracker, parameters, 1.0)
        assert torch.equal(other.gain["a"], tracker.gain["a"])
    assert tracker.gain["a"].item() > 0
    tracker.grow(parameters)
    assert tracker.iteration == 0
