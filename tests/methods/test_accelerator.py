"""Every method on an accelerator that is none: whole iterations, no mixed devices, no waiting for the device.

`WAITS` may only fall: a wait in the iteration stops the host until the device has done all it was given.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
import torch
from accelerator import Accelerator, MixedDevices, NoDoubles, device

from segue.core import plugins
from segue.data.transfer import sent
from segue.engine.train import update
from segue.methods._stores import gaussians, imagined, mixtures
from segue.methods.caf.config import RehearsalConfig
from segue.testing import TRAIN, Bench

DEVICE = device()
"""asked for when tests are collected: see there"""
WAITS: dict[str, int] = {}
"""waits of an iteration in a later step, by method; those that are not named have none"""
NEED_FILES = {"saliency"}
NEED_DOUBLES = {"acil"}
"""methods that are refused where there is no double precision"""
STORES = get_args(get_type_hints(RehearsalConfig)["store"])
VARIANTS = [
    *(("caf", {"variant": variant}) for variant in plugins.find("method", "caf").variants),
    *(("caf", {"rehearsal": {"weight": 1.0, "store": store}}) for store in STORES),
    ("star", {"mixture": True, "adapt": True}),
]


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


@pytest.fixture
def like_mps(accelerator: Accelerator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device has no double precision."""
    accelerator.doubles = False
    for store in (gaussians, imagined, mixtures):
        monkeypatch.setattr(store, "finest", lambda _: torch.float32)


def go_through(bench: Bench, accelerator: Accelerator, steps: int | None = None) -> list[int]:
    """Steps with two iterations each; the waits of the second iteration of each step."""
    method, waits = bench.method(), []
    for step in bench.scenario.steps[:steps]:
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


@pytest.mark.precision("float32")
@pytest.mark.usefixtures("like_mps")
@pytest.mark.parametrize(
    ("name", "params"), [*((name, {}) for name in plugins.names("method")), *VARIANTS], ids=str
)
def test_whole_iterations_on_the_device_and_their_waits(name: str, params: dict, accelerator) -> None:
    accelerator.doubles = name in NEED_DOUBLES
    waits = go_through(Bench(plugins.find("method", name), params, device=DEVICE), accelerator, steps=2)
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
    assert go_through(bench, accelerator)[-1] == 0


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
        y = (x * 2 + sent(here, DEVICE)).where(x > 1, 0.0)[torch.arange(2, device=DEVICE)]
        y.requires_grad_().square().sum().backward()
    assert waits.total() == 0 and y.grad.device == DEVICE


def test_copies_to_the_accelerator_wait_unless_they_are_asked_not_to(accelerator) -> None:
    x, here = torch.arange(4.0, device=DEVICE), torch.arange(4.0)
    for wait in (lambda: here.to(DEVICE), lambda: torch.tensor([1.0], device=DEVICE), lambda: x.new_tensor(3),
                 lambda: x.copy_(here), lambda: x[torch.tensor([0, 1])], lambda: x[[0, 1]]):  # fmt: skip
        with accelerator.counting() as waits:
            wait()
        assert waits == {"to device": 1}
    with accelerator.counting() as waits:
        assert torch.equal(sent(here, DEVICE).cpu(), here)
        x.new_full((), 3), x.fill_(2), x * torch.tensor(2.0)
    assert waits == {"to cpu": 1}


def test_the_accelerator_narrows_and_refuses_as_others_do(accelerator) -> None:
    x = torch.ones(2, 2, device=DEVICE, dtype=torch.float32)
    with torch.autocast(DEVICE.type, dtype=torch.float16):
        assert (x @ x).dtype == torch.float16 and (x + x).dtype == torch.float32
    with torch.inference_mode():
        assert not (x.requires_grad_() * 2).requires_grad
    accelerator.doubles = False
    with pytest.raises(NoDoubles):
        x.double()
