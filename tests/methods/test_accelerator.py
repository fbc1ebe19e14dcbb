"""Every method on an accelerator that is none: whole iterations, no mixed devices, no waiting for the device.

`WAITS` may only fall: a wait in the iteration stops the host until the device has done all it was given.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest
import torch
from accelerator import Accelerator, MixedDevices, device

from segue.core import plugins
from segue.engine import evaluate as evaluation
from segue.engine.train import update
from segue.testing import TRAIN, Bench

DEVICE = device()
"""asked for when tests are collected: see there"""
WAITS: dict[str, int] = {}
"""waits of an iteration in a later step, by method; those that are not named have none"""
NEED_FILES = {"saliency"}
VARIANTS = [("caf", {"variant": variant}) for variant in plugins.find("method", "caf").variants]


def alternatives(kind: type, prefix: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every other value of the settings that have a choice, each alone."""
    hints = get_type_hints(kind)
    for field in dataclasses.fields(kind):
        hint, path = hints[field.name], (*prefix, field.name)
        if dataclasses.is_dataclass(hint):
            yield from alternatives(hint, path)
        elif get_origin(hint) is Literal:
            yield from ((path, value) for value in get_args(hint) if value != field.default)
        elif hint is bool:
            yield path, not field.default


def nested(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    for name in reversed(path):
        value = {name: value}
    return value


def choices() -> Iterator[Any]:
    for name in plugins.names("method"):
        for path, value in alternatives(plugins.find("method", name).Config):
            if path != ("variant",) and path[-1] not in NEED_FILES:
                yield pytest.param(name, nested(path, value), id=f"{name}-{'.'.join(path)}={value}")


@pytest.fixture
def accelerator() -> Iterator[Accelerator]:
    with Accelerator() as made:
        yield made


def go_through(bench: Bench, accelerator: Accelerator) -> list[int]:
    """All steps with two iterations each; the waits of the second iteration of each step."""
    method, waits = bench.method(), []
    for step in bench.scenario:
        session = bench.begin(method, step)
        bench.train(session, step, range(1))
        with accelerator.counting() as counted:
            bench.train(session, step, range(1, 2))
        waits.append(counted.total())
        bench.finish(session, step)
        with torch.no_grad():
            logits = method.predict(bench.batch(step, 1).images)
        assert logits.device == DEVICE and logits.shape[1] == step.num_channels
        elsewhere = [name for name, value in method.state_dict().items()
                     if "extra_state" not in name and value.device != DEVICE]  # fmt: skip
        assert not elsewhere
    return waits


@pytest.mark.parametrize(
    ("name", "params"), [*((name, {}) for name in plugins.names("method")), *VARIANTS], ids=str
)
def test_whole_iterations_on_the_device_and_their_waits(name: str, params: dict, accelerator) -> None:
    waits = go_through(Bench(plugins.find("method", name), params, device=DEVICE), accelerator)
    assert waits[-1] == WAITS.get(name, 0), "it may only fall: then lower the table"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "params"), list(choices()))
def test_every_choice_of_a_method_works_on_the_device(name: str, params: dict, accelerator) -> None:
    try:
        bench = Bench(plugins.find("method", name), params, device=DEVICE)
        method = Bench(bench.kind, params).method()
        for step in bench.scenario:
            method.grow(step)
    except (ValueError, AssertionError) as error:
        pytest.skip(f"not without other settings: {error}")
    go_through(bench, accelerator)


def test_numbers_are_those_of_the_cpu() -> None:
    def losses(bench: Bench) -> list[float]:
        method = bench.method()
        for step in bench.scenario:
            session = bench.begin(method, step)
            bench.train(session, step, range(2))
            found = update(session, bench.batch(step, 5), 5.0, TRAIN)
            bench.finish(session, step)
        return [float(value) for value in found.values()]

    kind = plugins.find("method", "caf")
    plain = losses(Bench(kind, {}))
    with Accelerator():
        assert losses(Bench(kind, {}, device=DEVICE)) == pytest.approx(plain, rel=1e-4)


def test_evaluation_counts_on_the_device(accelerator) -> None:
    kind = plugins.find("method", "mib")
    bench, plain = Bench(kind, {}, device=DEVICE), Bench(kind, {})
    matrices = []
    for each in (bench, plain):
        method, step = each.method(), each.scenario[0]
        each.finish(each.begin(method, step), step)

        class Batches(list):
            device = torch.device("cpu")

        batches = Batches([each.batch(step, seed, split="test") for seed in (1, 2)])
        batches.device = batches[0].images.device
        test = evaluation.evaluate_by.__wrapped__  # without inference mode, of which wrappers know nothing
        with torch.no_grad():
            matrices.append(test(method, ("predict",), batches, step.num_channels)["predict"])
    assert np.array_equal(*matrices) and matrices[0].sum() > 0


def test_the_accelerator_notices_what_it_is_for(accelerator) -> None:
    x, here = torch.arange(4.0, device=DEVICE), torch.arange(4.0)
    generator = torch.Generator()
    for mixed in (
        lambda: x + here,
        lambda: torch.cat([x, here]),
        lambda: torch.rand(2, device=DEVICE, generator=generator),
    ):
        with pytest.raises(MixedDevices):
            mixed()
    for wait in (lambda: x.sum().item(), lambda: x.tolist(), lambda: x[x > 1], lambda: x.nonzero(),
                 lambda: bool(x.any()), lambda: x.cpu(), lambda: torch.equal(x, x)):  # fmt: skip
        with accelerator.counting() as waits:
            wait()
        assert waits.total() >= 1
    with accelerator.counting() as waits:
        y = (x * 2 + here.to(DEVICE)).where(x > 1, 0.0)[torch.tensor([0, 1], device=DEVICE)]
        y.requires_grad_().square().sum().backward()
    assert waits.total() == 0 and y.grad.device == DEVICE
