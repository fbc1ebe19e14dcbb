"""Networks that know no background: the label 0 means "some old class", in every loss.

Channel 0 has the logit -1e4, as models/adopted/grow.py puts it in front. Four old classes, one new one.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from segue.losses import (
    cross_entropy,
    distillation,
    incremental_losses,
    unbiased_cross_entropy,
    unbiased_distillation,
)
from segue.losses.unlabelled import channels_of_unlabelled, without_background

OLD, ALL = 5, 6
"""channels with the one in front"""


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    with without_background(OLD):
        yield
    assert channels_of_unlabelled() == 0


def scores(channels: int, seed: int) -> Tensor:
    torch.manual_seed(seed)
    logits = torch.randn(2, channels, 6, 7, dtype=torch.float64)
    logits[:, 0] = -1e4
    return logits.requires_grad_()


def labels(value: int | None = None) -> Tensor:
    torch.manual_seed(3)
    drawn = torch.tensor([0, 5, 255])[torch.randint(3, (2, 6, 7))]
    return drawn if value is None else torch.full_like(drawn, value)


def by_hand(logits: Tensor, labels: Tensor) -> Tensor:
    """-log p(label), for label 0 -log of the sum over the old classes; mean over all pixels."""
    p = logits[:, 1:].softmax(1)
    said = p[:, :-1].sum(1).where(labels == 0, p[:, -1])
    return -(said.log() * (labels != 255)).mean()


@pytest.mark.parametrize("loss", ["plain", "unbiased", "joined"])
def test_unlabelled_pixels_are_some_old_class(loss: str) -> None:
    """finetune, lwf and dft use the plain one, mib and caf the unbiased one: the same."""
    logits, old, target = scores(ALL, 0), scores(OLD, 1).detach(), labels()
    found = {
        "plain": lambda: cross_entropy(logits, target),
        "unbiased": lambda: unbiased_cross_entropy(logits, target, OLD),
        "joined": lambda: incremental_losses(logits, old, target, OLD)[0],
    }[loss]()
    assert torch.allclose(found, by_hand(logits, target))
    (grad,) = torch.autograd.grad(found, logits)
    assert grad.isfinite().all() and not grad[:, 0].any()


def test_plain_cross_entropy_still_takes_the_labels_of_old_classes() -> None:
    """Images that are kept are labelled whole."""
    logits, target = scores(ALL, 0), labels(2)
    assert torch.allclose(cross_entropy(logits, target), F.cross_entropy(logits, target))


def test_classes_among_old_ones_are_not_moved_by_unlabelled_pixels() -> None:
    """Which old class it is, the label does not say: all of them gain in proportion."""
    logits = scores(ALL, 0)
    (grad,) = torch.autograd.grad(cross_entropy(logits, labels(0)), logits)
    ratio = grad[:, 1:OLD] / logits[:, 1:].softmax(1)[:, : OLD - 1]
    assert torch.allclose(ratio, ratio[:, :1].expand_as(ratio)) and (grad[:, 1:OLD] < 0).all()
    assert (grad[:, OLD] > 0).all()


@pytest.mark.parametrize("gamma", [None, 3.0])
def test_distillation_compares_old_classes_among_themselves(gamma: float | None) -> None:
    logits, old = scores(ALL, 0), scores(OLD, 1).detach()
    q, among = old[:, 1:].softmax(1), logits[:, 1:OLD].log_softmax(1)
    expected = -(q * among).sum(1).mean() / OLD
    found = unbiased_distillation(logits, old, gamma)
    assert torch.allclose(found, expected) and torch.allclose(distillation(logits, old), expected)
    (grad,) = torch.autograd.grad(found, logits)
    assert not grad[:, OLD].any() and not grad[:, 0].any()  # new classes are no one's loss


def test_before_there_are_old_classes_unlabelled_pixels_are_ignored() -> None:
    logits, target = scores(ALL, 0), labels()
    with without_background(1):
        found = cross_entropy(logits, target), unbiased_cross_entropy(logits, target, 1)
    ignored = target.masked_fill(target == 0, 255)
    expected = F.cross_entropy(logits, ignored, ignore_index=255, reduction="sum") / target.numel()
    assert all(torch.allclose(each, expected) for each in found)
