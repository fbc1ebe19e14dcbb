"""At the start of a step (new channels from the background's) the distillation asks for nothing."""

import pytest
import torch
from torch import Tensor

from segue.losses import background_balance, unbiased_distillation
from segue.models.classifier import GrowingClassifier

WIDTH, OLD = 8, 4


def classifier(*steps: int) -> GrowingClassifier:
    """A classifier in float64 that has grown through steps, with random weights and biases."""
    torch.manual_seed(0)
    grown = GrowingClassifier(WIDTH)
    for channels in steps:
        grown.grow(channels, balanced=False)
    for parameter in grown.parameters():
        torch.nn.init.normal_(parameter)
    return grown.double()


@pytest.fixture
def h() -> Tensor:
    return torch.randn(3, WIDTH, 4, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("steps", [(OLD,), (OLD, 1, 3)])
@pytest.mark.parametrize("new", [1, 5])
def test_new_classes_share_the_background(h: Tensor, steps: tuple[int, ...], new: int) -> None:
    model = classifier(*steps)
    old_channels = sum(steps)
    before = model(h).softmax(1)
    model.grow(new, balanced=True)
    after = model(h).softmax(1)
    assert after.shape[1] == old_channels + new
    torch.testing.assert_close(after[:, :1].sum(1) + after[:, old_channels:].sum(1), before[:, 0])
    torch.testing.assert_close(after[:, 1:old_channels], before[:, 1:])
    for channel in range(old_channels, old_channels + new):  # equal shares
        torch.testing.assert_close(after[:, channel], after[:, 0])


def test_distillation_is_the_teachers_entropy_and_pulls_nowhere(h: Tensor) -> None:
    model = classifier(OLD)
    teacher = model(h).detach()
    model.grow(3, balanced=True)
    student = model(h).detach().requires_grad_()
    value = unbiased_distillation(student, teacher)
    (gradient,) = torch.autograd.grad(value, student)
    p = teacher.softmax(1)
    entropy = -(p * p.log()).sum(1).mean()
    torch.testing.assert_close(value, entropy / OLD)
    assert gradient.abs().max() < 1e-12


def test_weighing_the_background_does_pull(h: Tensor) -> None:
    """With gamma other than 1 the student at the start is no minimum: the oracle above is not trivial."""
    model = classifier(OLD)
    teacher = model(h).detach()
    model.grow(3, balanced=True)
    student = model(h).detach().requires_grad_()
    value = unbiased_distillation(student, teacher, background_balance(teacher, "ratio"))
    (gradient,) = torch.autograd.grad(value, student)
    assert gradient.abs().max() > 1e-4


def test_unbalanced_growth_does_not_share(h: Tensor) -> None:
    model = classifier(OLD)
    before = model(h)
    model.grow(2, balanced=False)
    after = model(h)
    torch.testing.assert_close(after[:, :OLD], before)  # logits stay, probabilities do not
    shared = after.softmax(1)[:, 0] + after.softmax(1)[:, OLD:].sum(1)
    assert (shared - before.softmax(1)[:, 0]).abs().max() > 0.01
