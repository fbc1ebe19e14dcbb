"""STAR: how much of the old classes is replayed, what that costs, and Gaussians that follow the features."""

from __future__ import annotations

import pytest
import torch
from step_one import StepOne, step_one

from segue.core.classes import IGNORE
from segue.data.batches import Batch
from segue.losses.replay import no_new_class
from segue.losses.sigmoid import class_scores
from segue.methods.base import StepContext
from segue.testing import CPU


def lacking_step() -> tuple[StepOne, list[Batch]]:
    """A second step that begins with more of the old classes than its images show."""
    made = step_one("star", updates=0)
    method, step = made.method, made.step
    batches = [made.bench.batch(step, seed) for seed in (50, 51)]
    method.store.counts[: step.num_old] += 100
    method.background.copy_(method.store.counts[0])
    method.begin_step(StepContext(step, batches, CPU, method.generator))
    return made, batches


def test_what_a_step_lacks_is_replayed() -> None:
    made, batches = lacking_step()
    method, old, step = made.method, made.step.num_old, made.step
    seen = torch.zeros(old)
    for batch in batches:
        logits = made.old(batch.images).logits
        labels = batch.labels[:, 4::8, 4::8]  # the middle of each place
        best, index = logits[:, 1:].max(1)
        answers = torch.where(best > 0, index + 1, 0)
        seen += torch.bincount(answers[labels == 0], minlength=old)
    lacking = ((method.store.counts[:old] - seen).clamp_min(0) / 2).floor().long()
    assert method.replayed[1:].tolist() == lacking[1:].tolist() and method.replayed[0] == 0
    assert lacking[1:].sum() > 0
    whole = method.store.counts[0]
    expected = (whole * (1 - 0.01 * len(step.new)) / seen[0].clamp_min(1) - 0.5).clamp_min(0)
    torch.testing.assert_close(method.background_factor, expected)
    torch.testing.assert_close(method.background, whole * (1 - 0.01 * len(step.new)) + 0.5 * seen[0])


def test_replay_is_weighed_by_its_number() -> None:
    made, _ = lacking_step()
    method, step = made.method, made.step
    batch, first = made.bench.batch(step, 3), step.num_old - 1
    method.background_factor.zero_()
    state = method.generator.get_state()
    found = method.losses(batch)["bce"]
    method.generator.set_state(state)
    out = made.new(batch.images)
    wanted = torch.repeat_interleave(method.replayed)
    drawn = method.store.like(wanted, method.generator)
    replayed = method.model.classifier.scores(drawn[:, :, None, None])[:, first:, 0, 0]
    share = len(wanted) / (4 * 4 * 4)
    own = class_scores(out.logits[:, 1:], batch.labels, first)
    torch.testing.assert_close(found, (own + share * no_new_class(replayed).mean()) / (1 + share))


def test_old_classifiers_get_no_gradient() -> None:
    made = step_one("star", updates=0)
    losses = made.method.losses(made.bench.batch(made.step, 3))
    sum(losses.values()).backward()
    parts = made.method.model.classifier.parts
    assert parts[-1].weight.grad.any()
    assert parts[0].weight.grad is None or not parts[0].weight.grad.any()


@pytest.mark.parametrize("adapt", [False, True])
def test_what_is_kept_follows_the_features_only_with_adapt(adapt: bool) -> None:
    made = step_one("star", {"adapt": adapt, "sure_logit": -100.0}, updates=3)
    method, step = made.method, made.step
    before = method.store.directions[1 : step.num_old].clone()
    batches = [made.bench.batch(step, seed, label=0) for seed in (50, 51)]
    batches[0].labels[0] = IGNORE
    method.end_step(StepContext(step, batches, CPU, method.generator))
    assert torch.equal(method.store.directions[1 : step.num_old], before) or adapt
    if adapt:
        assert (method.replayed[1:] >= 1).all()
