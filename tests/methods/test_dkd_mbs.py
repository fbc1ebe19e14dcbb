"""DKD and MBS in their second step: where new classifiers begin, and every loss term."""

from __future__ import annotations

import torch
from step_one import step_one

from segue.losses.guided import (
    adaptive_distance,
    label_guided_distillation,
    orthogonality,
    selective_labels,
)
from segue.losses.pixel import IGNORE, cross_entropy
from segue.losses.sigmoid import class_scores, distilled_class_scores, distilled_reasons, reasons


def test_new_heads_of_dkd_begin_as_the_auxiliary_one() -> None:
    made = step_one("dkd", updates=0)
    new, auxiliary = made.method.model.classifier.parts[-1], made.method.auxiliary
    assert torch.equal(new.weight, auxiliary.weight.expand_as(new.weight))
    assert torch.equal(new.bias, auxiliary.bias.expand_as(new.bias))
    images = made.bench.batch(made.step, 0).images
    assert not made.new(images).logits[:, 0].any(), "background is the constant 0"


def test_terms_of_dkd() -> None:
    made = step_one("dkd", {"positive_next": 3.0})
    batch, method = made.bench.batch(made.step, 3), made.method
    old, new = made.old(batch.images), made.new(batch.images)
    labelled, distilled = distilled_class_scores(new.logits[:, 1:], old.logits[:, 1:], batch.labels, 3.0)
    parts = method.model.classifier.parts[0], made.before.classifier.parts[0]
    weights = [part.weight.detach() for part in parts]
    pairs = [reasons(out.features["h"], w) for out, w in zip((new, old), weights, strict=True)]
    speaks_for, against = distilled_reasons(*pairs)
    nothing = class_scores(method.auxiliary(new.features["h"]), torch.zeros_like(batch.labels))
    expected = {
        "bce": labelled,
        "kd": 5 * distilled,
        "for": 5 * speaks_for,
        "against": 5 * against,
        "auxiliary": nothing,
    }
    found = method.losses(batch)
    assert list(found) == list(expected)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-6, msg=name)


def test_the_auxiliary_head_teaches_itself_alone() -> None:
    made = step_one("dkd")
    loss = made.method.losses(made.bench.batch(made.step, 3))["auxiliary"]
    moved = torch.autograd.grad(loss, list(made.method.model.parameters()), allow_unused=True)
    assert all(gradient is None for gradient in moved)


def test_terms_of_mbs() -> None:
    made = step_one("mbs")
    batch, num_old = made.bench.batch(made.step, 3), made.step.num_old
    old, new = made.old(batch.images), made.new(batch.images)
    labels = selective_labels(batch.labels, old.logits, 0.7)
    assert (labels == IGNORE).any() and (labels != batch.labels).any()
    counted = (labels != IGNORE).sum()
    small = labels[:, 4::8, 4::8]
    rows, old_rows = (
        torch.cat([part.weight.flatten(1) for part in model.classifier.parts])
        for model in (made.method.model, made.before)
    )
    h, old_h = new.features["h"], old.features["h"]
    expected = {
        "ce": cross_entropy(new.logits, labels) * labels.numel() / counted,
        "features": adaptive_distance(h, old_h, small, old.logits)
        + (rows[:num_old] - old_rows).square().mean(),
        "kd": 25 * label_guided_distillation(new.logits, old.logits, batch.labels),
        "apart": orthogonality(rows, num_old),
    }
    found = made.method.losses(batch)
    assert list(found) == list(expected)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-6, msg=name)


def test_new_classes_of_mbs_begin_as_background() -> None:
    made = step_one("mbs", updates=0)
    logits = made.new(made.bench.batch(made.step, 0).images).logits
    for k in range(made.step.num_old, made.step.num_channels):
        torch.testing.assert_close(logits[:, k], logits[:, 0])
