"""STAR's losses on features, each by hand."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from segue.losses.replay import held_features, likeness, no_new_class, shrunk, uncertain


def test_all_scores_should_say_no() -> None:
    scores = torch.tensor([[0.0, 0.0], [2.0, -1.0]])
    expected = F.binary_cross_entropy_with_logits(scores, torch.zeros(2, 2), reduction="none").sum(1)
    torch.testing.assert_close(no_new_class(scores), expected)


def test_features_are_held_under_the_weight_and_nowhere_else() -> None:
    h, old = torch.ones(1, 2, 1, 3), torch.zeros(1, 2, 1, 3)
    h[..., 2] = 9.0
    assert held_features(h, old, torch.tensor([[[1.0, 0.5, 0.0]]])) == 1
    h.requires_grad_()
    nothing = held_features(h, old, torch.zeros(1, 1, 3))
    assert nothing == 0 and torch.isfinite(torch.autograd.grad(nothing, h)[0]).all()


def test_a_new_class_is_as_near_as_its_nearest_old_direction() -> None:
    h = torch.tensor([3.0, 0.0])[None, :, None, None].expand(1, 2, 2, 2)
    kept = torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
    here, nowhere = torch.ones(1, 1, 2, 2), torch.zeros(1, 1, 2, 2)
    assert likeness(h, here, kept) == pytest.approx(1 / math.sqrt(2))
    assert likeness(h, torch.cat([here, nowhere]), kept) == pytest.approx(1 / math.sqrt(2))
    assert likeness(h, nowhere, kept) == 0


def test_margins_count_where_the_answer_is_neither_right_nor_sure() -> None:
    p = torch.tensor([[0.6, 0.4], [0.6, 0.4], [0.9, 0.1], [0.3, 0.2]])  # wrong, right, sure, background
    scores = p.logit().t().reshape(1, 2, 1, 4)
    labels = torch.tensor([[[2, 1, 2, 0]]])
    assert uncertain(scores, labels, 0.7) == pytest.approx(0.8**2 / 4)


def test_masks_shrink_bilinearly() -> None:
    mask = torch.tensor([[[True, False], [False, False]]])
    assert shrunk(mask, torch.zeros(1, 3, 1, 1)).tolist() == [[[0.25]]]
