"""The closed-form classifier: how its steps add up, what it fills in, and what it leaves as it was."""

from __future__ import annotations

import pytest
import torch

from segue.core import plugins
from segue.core.classes import IGNORE
from segue.core.scenario import make_scenario
from segue.losses.ridge import ridge_sums, solve_ridge
from segue.methods.acil import ACIL
from segue.methods.base import StepContext
from segue.testing import CPU, Bench
from segue.testing.methods import CLASSES

EXACT = {"rtol": 1e-8, "atol": 1e-8}


def bench(**params: object) -> Bench:
    return Bench(plugins.find("method", "acil"), {"width": 48, **params})


def test_sums_of_two_halves_are_those_of_the_whole() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(60, 7, generator=generator).relu()
    labels = torch.randint(0, 3, (60,), generator=generator)
    labels[::5] = IGNORE
    whole = ridge_sums(features, labels, 3)
    halves = [ridge_sums(features[part], labels[part], 3) for part in (slice(0, 30), slice(30, 60))]
    for one, (a, b) in zip(whole, zip(*halves, strict=True), strict=True):
        torch.testing.assert_close(a + b, one, **EXACT)
    kept = features[labels != IGNORE].double()
    target = torch.nn.functional.one_hot(labels[labels != IGNORE], 3).double()
    by_hand = torch.linalg.solve(kept.t() @ kept + 0.5 * torch.eye(7), kept.t() @ target)
    torch.testing.assert_close(solve_ridge(*whole, 0.5), by_hand, **EXACT)


def fitted(split: str, **params: object) -> ACIL:
    """After all steps of a split; every image is in one step, the one of its newest class."""
    made = bench(confidence=None, **params)
    made.scenario = make_scenario(CLASSES, split)
    method = made.method()
    for step in made.scenario:
        session = made.begin(method, step)
        # images with the labels that they would have in a step of their own, whatever the split
        batches = [made.batch(step, seed=class_id) for class_id in step.new]
        for class_id, batch in zip(step.new, batches, strict=True):
            generator = torch.Generator().manual_seed(class_id)
            batch.images.random_(0, 256, generator=generator)
            batch.labels.zero_()[:, ::2] = class_id
        method.end_step(StepContext(step, batches, CPU, session.generator))
    return method


def test_classes_one_by_one_are_fitted_as_all_at_once() -> None:
    one_by_one, at_once = fitted("2-1"), fitted("2-4")
    a, b = (method.model.classifier.weight for method in (one_by_one, at_once))
    assert a.abs().max() > 0.01
    torch.testing.assert_close(a, b, **EXACT)


def test_later_steps_change_nothing_but_the_fit() -> None:
    made = bench()
    method = made.method()
    for step in made.scenario:
        before = {name: value.clone() for name, value in method.state_dict().items()}
        session = made.begin(method, step)
        made.train(session, step, range(2))
        made.finish(session, step)
        changed = {n for n, v in method.state_dict().items() if not torch.equal(before.get(n, v), v)}
        if not step.first:
            fit = {"products", "targets", "model.classifier.weight", "model.classifier.factor"}
            assert {"products"} <= changed and changed <= fit


@pytest.mark.parametrize(("confidence", "filled"), [(0.5, 2), (None, 0), (0.95, 0)])
def test_background_is_filled_where_the_fit_is_sure(confidence: float | None, filled: int) -> None:
    made = bench(confidence=confidence)
    method = made.method()
    for step in made.scenario.steps[:2]:
        method.grow(step)
    values = torch.tensor([0.1, 0.2, 0.9, 0.0, 0.0])[None, :, None, None].expand(1, 5, 1, 4)
    method.model.classifier.values = lambda widened: values
    labels = torch.tensor([[[0, 0, 3, IGNORE]]])
    answer = method.filled(labels, values, step)
    assert answer.flatten().tolist() == [filled, filled, 3, IGNORE]
