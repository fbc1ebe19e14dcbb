"""Three Gaussians per class: what they find, what is drawn from them, and how they follow the features."""

from __future__ import annotations

import pytest
import torch
from step_one import step_one
from torch import Tensor

from segue.core.scenario import Step
from segue.data.batches import Batch
from segue.losses.mixtures import likelihood_distance
from segue.losses.replay import held_features
from segue.methods._stores import Sure, bytes_per_class
from segue.methods._stores.mixtures import COMPONENTS, LEAST, Mixtures, fitted
from segue.methods.base import StepContext
from segue.testing import CPU

FIRST, NEXT = Step(0, (1, 2)), Step(1, (3,), (1, 2))
CENTRES = torch.tensor([[0.0, 0.0], [8.0, 1.0], [-8.0, 2.0]])


def three_clusters(each: int = 200) -> Tensor:
    noise = torch.randn(3, each, 2, generator=torch.Generator().manual_seed(0))
    return (CENTRES[:, None].to(noise) + noise * torch.tensor([1.0, 0.5])).flatten(0, 1)


def batches(last: int) -> list[Batch]:
    generator = torch.Generator().manual_seed(last)
    images = [torch.randn(2, 2, 8, 8, generator=generator) + 1 for _ in range(3)]
    labels = [torch.randint(0, last, (2, 8, 8), generator=generator) for _ in range(3)]
    return [Batch(x, y, ["a", "b"]) for x, y in zip(images, labels, strict=True)]


def collected() -> Mixtures:
    store = Mixtures(2, per_class=4000)
    store.grow(FIRST)
    store.collect(lambda images: images, batches(3), FIRST)
    return store


def test_clusters_are_found() -> None:
    features = three_clusters()
    means, variances, shares = fitted(features)
    order = means[:, 0].argsort()
    parts = features.unflatten(0, (3, -1))[[2, 0, 1]]
    # the clusters do not touch, so each Gaussian is its cluster's own
    torch.testing.assert_close(means[order], parts.mean(1), atol=1e-6, rtol=0)
    torch.testing.assert_close(variances[order], parts.var(1, correction=0), atol=1e-5, rtol=0)
    torch.testing.assert_close(shares, torch.full((3,), 1 / 3), atol=1e-6, rtol=0)


@pytest.mark.parametrize("number", [1, LEAST - 1])
def test_few_features_have_one_gaussian(number: int) -> None:
    features = torch.randn(number, 5)
    means, variances, shares = fitted(features)
    assert shares.tolist() == [1.0, 0.0, 0.0]
    torch.testing.assert_close(means[0], features.mean(0))
    assert (variances > 0).all()


def test_equal_features_have_a_finite_mixture() -> None:
    assert all(value.isfinite().all() for value in fitted(torch.ones(100, 4)))


def test_drawn_features_have_mean_and_variance_of_those_seen() -> None:
    store = collected()
    drawn, labels = store.draw(torch.Generator().manual_seed(0))
    for label in range(3):
        seen = torch.cat([b.images.movedim(1, -1)[b.labels == label] for b in batches(3)])
        assert store.counts[label] == len(seen)
        mine = drawn[labels == label]
        torch.testing.assert_close(mine.mean(0), seen.mean(0), atol=0.1, rtol=0)
        torch.testing.assert_close(mine.var(0), seen.var(0), atol=0.15, rtol=0)
    again, _ = store.draw(torch.Generator().manual_seed(0))
    assert torch.equal(drawn, again)


def test_later_steps_leave_old_classes_as_they_are() -> None:
    store = collected()
    before = {name: value.clone() for name, value in store.named_buffers()}
    store.grow(NEXT)
    store.collect(lambda images: images, batches(4), NEXT)
    for name, value in store.named_buffers():
        assert torch.equal(value[:3], before[name]) and value[3].abs().sum() > 0, name


def test_what_is_kept_takes_in_what_both_models_are_sure_of() -> None:
    store = collected()
    before = {name: value.clone() for name, value in store.named_buffers()}
    sure = torch.randn(60, 2) + 3
    store.follow([Sure(torch.ones(60, dtype=torch.long), sure, sure)], num_old=3)
    for name, value in store.named_buffers():
        assert torch.equal(value[[0, 2]], before[name][[0, 2]]), name
    number = before["counts"][1]
    mean = (before["shares"][1][:, None] * before["means"][1]).sum(0)
    merged = (number * mean + sure.sum(0)) / (number + 60)
    torch.testing.assert_close((store.shares[1][:, None] * store.means[1]).sum(0), merged)
    assert store.counts[1] == number


def test_six_vectors_and_four_numbers_a_class() -> None:
    store = collected()
    assert bytes_per_class(store, 3) == (2 * COMPONENTS * 2 + COMPONENTS + 1) * store.counts.element_size()


def test_star_holds_likelihoods_beside_features() -> None:
    made = step_one("star", {"mixture": True, "sure_logit": -100.0}, updates=2)
    method, batch = made.method, made.bench.batch(made.step, 3, label=0)
    losses = method.losses(batch)
    h, old = (model(batch.images).features["h"].detach() for model in (method.model, method.teacher))
    weight = torch.ones(len(h), *h.shape[-2:])
    held = held_features(h, old, weight)
    held = held + likelihood_distance(h, old, weight, method.store.of_classes(made.step.num_old))
    assert held > 0
    torch.testing.assert_close(losses["features"].detach(), 5 * held)


def test_mixtures_of_star_follow_the_features() -> None:
    made = step_one("star", {"mixture": True, "sure_logit": -100.0}, updates=3)
    method, step = made.method, made.step
    before = method.store.means[1 : step.num_old].clone()
    batches = [made.bench.batch(step, seed, label=0) for seed in (50, 51)]
    places = torch.cat([sure.labels_N for sure in method.sure_places(StepContext(step, batches, CPU, None))])
    method.end_step(StepContext(step, batches, CPU, method.generator))
    moved = (method.store.means[1 : step.num_old] != before).any(2).any(1)
    assert moved.tolist() == [bool((places == k).any()) for k in range(1, step.num_old)]
