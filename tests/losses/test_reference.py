"""Every number of the authors' own code (reference_losses.json), to 1e-6: values and gradients."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from segue.losses import (
    Fisher,
    PathIntegral,
    RiemannianWalk,
    binary_cross_entropy,
    binary_distillation,
    cross_entropy,
    distillation,
    local_pod,
    unbiased_cross_entropy,
    unbiased_distillation,
)
from segue.losses.importance import Importance

REFERENCE = json.loads((Path(__file__).parent / "reference_losses.json").read_text())
PIXEL_CASES = REFERENCE["pixel_losses"]

PixelLoss = Callable[[Tensor, Tensor, Tensor, int], Tensor]
PIXEL_LOSSES: dict[str, PixelLoss] = {
    "ce_mean_all_pixels": lambda new, old, labels, num_old: cross_entropy(new, labels),
    "unbiased_ce_mean_all_pixels": lambda new, old, labels, num_old: unbiased_cross_entropy(
        new, labels, num_old
    ),
    "kd_lwf": lambda new, old, labels, num_old: distillation(new, old),
    "unbiased_kd": lambda new, old, labels, num_old: unbiased_distillation(new, old),
    "bce_lwf_mc_sum_classes_mean_all_pixels": lambda new, old, labels, num_old: binary_cross_entropy(
        new, labels
    ),
    "bce_kd_lwf_mc_unweighted": lambda new, old, labels, num_old: binary_distillation(new, old),
}
FLOAT32 = {"bce_lwf_mc_sum_classes_mean_all_pixels"}
"""what the authors' code computes in single precision"""


def test_the_file_holds_nothing_else() -> None:
    assert set(REFERENCE) == {"note", "pixel_losses", "local_pod", "importance"}
    assert all(set(case["expected"]) == set(PIXEL_LOSSES) for case in PIXEL_CASES)
    assert set(REFERENCE["importance"]) == set(TRACKERS)
    for case, void in zip(PIXEL_CASES, ([], [255]), strict=True):
        new = range(case["num_old"], case["num_all"])
        assert torch.tensor(case["labels"]).unique().tolist() == [0, *new, *void]


@pytest.mark.parametrize("name", PIXEL_LOSSES)
@pytest.mark.parametrize("case", PIXEL_CASES, ids=["without void", "with void"])
def test_pixel_losses(case: dict, name: str) -> None:
    dtype = torch.float32 if name in FLOAT32 else torch.float64
    logits, old_logits = (torch.tensor(case[key], dtype=dtype) for key in ("logits", "old_logits"))
    logits.requires_grad_()
    value = PIXEL_LOSSES[name](logits, old_logits, torch.tensor(case["labels"]), case["num_old"])
    (gradient,) = torch.autograd.grad(value, logits)
    expected = case["expected"][name]
    assert value.item() == pytest.approx(expected["value"], rel=0, abs=1e-6)
    close(gradient, expected["grad_logits"])


@pytest.mark.parametrize("case", REFERENCE["local_pod"])
def test_local_pod(case: dict) -> None:
    old, new = ([double(values) for values in case[key]] for key in ("old_maps", "new_maps"))
    for values in new:
        values.requires_grad_()
    value = local_pod(
        old,
        new,
        case["num_old"],
        case["num_all"] - case["num_old"],
        case["factor"],
        case["factor_logits"],
        case["scales"],
    )
    assert value.item() == pytest.approx(case["expected"]["value"], rel=0, abs=1e-6)
    for gradient, expected in zip(
        torch.autograd.grad(value, new), case["expected"]["grad_new_maps"], strict=True
    ):
        close(gradient, expected)


TRACKERS: dict[str, tuple[type[Importance], dict[str, Callable]]] = {
    "ewc": (Fisher, {"fisher": lambda tracker: tracker.fisher}),
    "pi": (PathIntegral, {"score": lambda tracker: tracker.score, "delta": lambda tracker: tracker.gain}),
    "rw": (
        RiemannianWalk,
        {"score": lambda tracker: tracker.score, "fisher": lambda tracker: tracker.information.fisher},
    ),
}
"""tracker, and where it keeps what the authors' code stores"""


@pytest.mark.parametrize("name", TRACKERS)
def test_importance(name: str) -> None:
    case = REFERENCE["importance"][name]
    kind, kept = TRACKERS[name]
    tracker = kind()
    assert getattr(tracker, "every", case["rw_every"]) == case["rw_every"]
    model = nn.Linear(3, 2).double()
    place(model, case["w0"], case["b0"])
    parameters = dict(model.named_parameters())
    tracker.begin_step(parameters, first=True)
    tracker.grow(parameters)
    for x, y in zip(double(case["x"]), double(case["y"]), strict=True):
        model.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        tracker.update(parameters)
        with torch.no_grad():
            for parameter in parameters.values():
                parameter -= case["lr"] * parameter.grad
    tracker.end_step(parameters)
    close(model.weight, case["trained_weight"])
    close(model.bias, case["trained_bias"])
    state = case["expected"]["state_after_step0"]
    assert set(kept) == {key for key in ("fisher", "score", "delta") if key in state}
    for key, find in kept.items():
        for parameter in parameters:
            close(find(tracker)[parameter], state[key][parameter])

    tracker.begin_step(parameters, first=False)
    assert tracker.penalty(parameters).item() == 0  # nothing has moved
    place(model, case["moved_weight"], case["moved_bias"])
    model.zero_grad()
    penalty = tracker.penalty(parameters)
    assert penalty.item() == pytest.approx(case["expected"]["penalty"], rel=0, abs=1e-6)
    penalty.backward()
    for parameter, value in parameters.items():
        close(value.grad, case["expected"][f"grad_{parameter}"])
        value.grad.fill_(1.0)
    tracker.add_penalty_gradient(parameters, 1.0)  # the same in closed form, on top of what is there
    for parameter, value in parameters.items():
        close(value.grad - 1, case["expected"][f"grad_{parameter}"])


def double(values: list) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def place(model: nn.Linear, weight: list, bias: list) -> None:
    with torch.no_grad():
        model.weight.copy_(double(weight))
        model.bias.copy_(double(bias))


def close(ours: Tensor, theirs: list) -> None:
    torch.testing.assert_close(ours.detach().double(), double(theirs), rtol=0, atol=1e-6)
