"""The pixel losses give the numbers of the authors' own code, to 1e-6, values and gradients."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from segue.losses import cross_entropy, unbiased_cross_entropy, unbiased_distillation

CASES = json.loads((Path(__file__).parent / "reference_pixel.json").read_text())["cases"]
LOSSES = ("cross_entropy", "unbiased_cross_entropy", "unbiased_distillation")


def evaluate(name: str, case: dict, logits: Tensor) -> Tensor:
    labels = torch.tensor(case["labels"])
    if name == "cross_entropy":
        return cross_entropy(logits, labels)
    if name == "unbiased_cross_entropy":
        return unbiased_cross_entropy(logits, labels, case["num_old"])
    return unbiased_distillation(logits, torch.tensor(case["old_logits"], dtype=torch.float64))


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("case", CASES, ids=["without void", "with void"])
def test_value_and_gradient(case: dict, name: str) -> None:
    expected = case["expected"][name]
    logits = torch.tensor(case["logits"], dtype=torch.float64, requires_grad=True)
    value = evaluate(name, case, logits)
    (gradient,) = torch.autograd.grad(value, logits)
    assert value.item() == pytest.approx(expected["value"], abs=1e-6)
    torch.testing.assert_close(
        gradient, torch.tensor(expected["grad_logits"], dtype=torch.float64), rtol=0, atol=1e-6
    )


def test_cases_have_background_every_new_class_and_void() -> None:
    """The numbers above say something."""
    for case, void in zip(CASES, ([], [255]), strict=True):
        new = range(case["num_old"], len(case["logits"][0]))
        assert torch.tensor(case["labels"]).unique().tolist() == [0, *new, *void]
        assert set(case["expected"]) == set(LOSSES)
