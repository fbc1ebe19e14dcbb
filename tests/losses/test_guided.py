"""MBS: labels, distillation, distances and likeness, each by hand."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from segue.losses.guided import (
    adaptive_distance,
    label_guided_distillation,
    orthogonality,
    selective_labels,
)
from segue.losses.pixel import IGNORE


def test_background_goes_to_the_new_class_where_one_is_labelled() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 5, 3, 4, generator=generator).requires_grad_()
    old = torch.randn(2, 3, 3, 4, generator=generator)
    labels = torch.randint(0, 5, (2, 6, 8), generator=generator)
    labels[1, 0] = IGNORE
    full, p = (F.interpolate(each, (6, 8), mode="bilinear") for each in (logits, old))
    p = p.softmax(1)
    target = torch.cat([p, torch.zeros(2, 2, 6, 8)], dim=1)
    for k in (3, 4):
        target[:, k] = p[:, 0] * (labels == k)
    target[:, 0] = p[:, 0] * ~((labels == 3) | (labels == 4))
    expected = -(target * full.log_softmax(1)).mean()
    ours = label_guided_distillation(logits, old, labels)
    torch.testing.assert_close(ours, expected)
    torch.testing.assert_close(*(torch.autograd.grad(loss, logits)[0] for loss in (ours, expected)))


def test_labels_are_filled_where_the_teacher_is_sure_and_dropped_where_it_doubts() -> None:
    # places: sure of class 1; old classes together above background; background; already labelled
    p = torch.tensor([[0.1, 0.8, 0.1], [0.4, 0.35, 0.25], [0.6, 0.3, 0.1], [0.1, 0.8, 0.1]])
    old = p.log().t().reshape(1, 3, 1, 4)
    labels = torch.tensor([[[0, 0, 0, 3]]])
    assert selective_labels(labels, old, 0.7).flatten().tolist() == [1, IGNORE, 0, 3]
    assert selective_labels(labels, old, 0.9).flatten().tolist() == [IGNORE, IGNORE, 0, 3]


def test_places_count_as_far_as_the_teacher_knows_them() -> None:
    h, old_h = torch.full((1, 2, 1, 4), 3.0), torch.zeros(1, 2, 1, 4)
    labels = torch.tensor([[[1, 2, IGNORE, 0]]])  # old, new, ignored, background
    old_logits = torch.tensor([0.25, 0.75]).log()[None, :, None, None].expand(1, 2, 1, 4)
    torch.testing.assert_close(
        adaptive_distance(h, old_h, labels, old_logits), torch.tensor((18 + 0.25 * 18) / 4)
    )
    nothing = adaptive_distance(h, old_h, torch.full_like(labels, IGNORE), old_logits)
    assert nothing == 0


def test_new_rows_are_compared_with_all_others_but_not_with_themselves() -> None:
    rows = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 3.0]]).requires_grad_()
    value = orthogonality(rows, 2)
    torch.testing.assert_close(value, torch.tensor(0.5).sqrt() / 3)
    gradient = torch.autograd.grad(value, rows)[0]
    assert not gradient[:2].any() and gradient[2].abs().max() < 1e-6  # as far from the one as from the other
