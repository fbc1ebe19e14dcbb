"""Losses of heads without background: by hand, their gradients, and how a score comes apart."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from segue.losses.balance import balanced_classes
from segue.losses.sigmoid import class_scores, distilled_class_scores, distilled_reasons, reasons

SIZE = (6, 10)


@pytest.fixture
def scores() -> Tensor:
    return torch.randn(2, 4, 3, 5, generator=torch.Generator().manual_seed(0)).requires_grad_()


@pytest.fixture
def labels() -> Tensor:
    labels = torch.randint(0, 5, (2, *SIZE), generator=torch.Generator().manual_seed(1))
    labels[0, 0] = 255
    return labels


def by_hand(scores: Tensor, labels: Tensor, num_old: int, positive: float) -> Tensor:
    """The same with torch's own binary cross-entropy at full resolution."""
    full = F.interpolate(scores, SIZE, mode="bilinear")[:, num_old:]
    targets = torch.stack([labels == m + 1 for m in range(num_old, scores.shape[1])], dim=1).to(full.dtype)
    weight = torch.tensor(positive)
    return F.binary_cross_entropy_with_logits(full, targets, pos_weight=weight).mul(full.shape[1])


@pytest.mark.parametrize("positive", [1.0, 35.0])
@pytest.mark.parametrize("num_old", [0, 3])
def test_new_classes_against_all_else(scores: Tensor, labels: Tensor, num_old: int, positive: float) -> None:
    ours, theirs = class_scores(scores, labels, num_old, positive), by_hand(scores, labels, num_old, positive)
    torch.testing.assert_close(ours, theirs)
    gradients = [torch.autograd.grad(loss, scores)[0] for loss in (ours, theirs)]
    torch.testing.assert_close(*gradients)
    assert not gradients[0][:, :num_old].any()


def test_balance_leaves_the_mean_weight_of_a_pixel_at_one(scores: Tensor, labels: Tensor) -> None:
    plain = class_scores(torch.zeros_like(scores), labels, 2)
    with balanced_classes(True):
        balanced = class_scores(torch.zeros_like(scores), labels, 2)
        other = class_scores(scores, labels, 2)
    torch.testing.assert_close(plain, balanced)
    assert not torch.isclose(other, class_scores(scores, labels, 2), rtol=1e-3)


def test_distillation_is_the_sum_over_old_classes(scores: Tensor, labels: Tensor) -> None:
    old = torch.randn(2, 3, 3, 5, generator=torch.Generator().manual_seed(2))
    labelled, distilled = distilled_class_scores(scores, old, labels, 2.0)
    torch.testing.assert_close(labelled, class_scores(scores, labels, 3, 2.0))
    ours, theirs = (F.interpolate(each, SIZE, mode="bilinear") for each in (scores[:, :3], old))
    expected = F.binary_cross_entropy_with_logits(ours, theirs.sigmoid(), reduction="none").sum(1).mean()
    torch.testing.assert_close(distilled, expected)


@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("floor", [0.0, -0.5])
def test_reasons_for_and_against_are_the_score(kernel: int, floor: float) -> None:
    generator = torch.Generator().manual_seed(3)
    h = torch.randn(2, 8, 4, 4, generator=generator).clamp_min(floor)
    weight = torch.randn(3, 8, kernel, kernel, generator=generator)
    speaks_for, speaks_against = reasons(h, weight, (kernel // 2, kernel // 2))
    torch.testing.assert_close(speaks_for + speaks_against, F.conv2d(h, weight, padding=kernel // 2))
    assert (speaks_for >= 0).all() and (speaks_against <= 0).all()
    if floor == 0:
        torch.testing.assert_close(speaks_for, F.conv2d(h, weight.relu(), padding=kernel // 2))


def test_a_teacher_equal_to_the_student_pulls_nowhere() -> None:
    generator = torch.Generator().manual_seed(4)
    pair = tuple(torch.randn(2, 3, 4, 4, generator=generator).requires_grad_() for _ in range(2))
    losses = distilled_reasons(pair, tuple(each.detach() for each in pair))
    for loss, own in zip(losses, pair, strict=True):
        entropy = -(own.sigmoid() * F.logsigmoid(own) + (-own).sigmoid() * F.logsigmoid(-own))
        torch.testing.assert_close(loss, entropy.sum(1).mean())
        assert torch.autograd.grad(loss, own)[0].abs().max() < 1e-7
