"""The contract of a method, for anyone who writes one: `check_method("mib")` or `check_method(MyMethod)`.

Three small steps on random pictures, about a second. A broken promise is an AssertionError that says which.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch

from segue.core import plugins
from segue.core.classes import IGNORE, ClassTable
from segue.core.config import ModelConfig, OptimConfig, ReplayConfig, TrainConfig, validate
from segue.core.declaration import Start
from segue.core.overrides import merge
from segue.core.scenario import Scenario, Step, make_scenario
from segue.data.batches import Batch
from segue.engine.seeds import seed_all
from segue.engine.train import Session, update
from segue.losses import upsample
from segue.methods.base import Method, StepContext
from segue.models.network import Network
from segue.models.segmenter import Segmenter

CLASSES = ClassTable("contract", {i: f"class {i}" for i in range(1, 7)})
MODEL = ModelConfig(backbone="tiny", head="tiny", output_stride=8)
OPTIM = OptimConfig(lr_first=0.01, lr_next=0.01)
TRAIN = TrainConfig(batch_size=4, crop=32)
CPU = torch.device("cpu")
ROUNDING = 1e-4
"""largest difference of logits in single precision between two ways through a network"""


def check_method(
    method: str | type[Method],
    params: dict[str, Any] | None = None,
    network: Network | None = None,
    checks: Sequence[Callable[[Bench], None]] | None = None,
) -> None:
    """Check every promise of a method; `params` are its settings.

    `network`, without channels yet, is another one than Segue's own small one: it stays as it is.
    """
    kind = plugins.find("method", method) if isinstance(method, str) else method
    bench = Bench(kind, params or {}, network)
    for check in CHECKS if checks is None else checks:
        check(bench)


class Bench:
    """A method on made-up pictures; every object it makes is the same as the one before."""

    def __init__(
        self,
        kind: type[Method],
        params: dict[str, Any],
        network: Network | None = None,
        device: torch.device = CPU,
    ) -> None:
        assert issubclass(kind, Method), f"{kind.__name__} is no subclass of segue.methods.base.Method"
        assert hasattr(kind, "Config") and hasattr(kind, "about"), f"{kind.__name__} lacks Config or about"
        values = merge(kind.variants.get(str(params.get("variant")), {}), params)
        self.kind, self.network, self.device = kind, network, device
        self.params: Any = validate(kind.Config, values, "method.params")
        self.scenario: Scenario = make_scenario(CLASSES, "2-2", offline=kind.offline)

    def method(self, frozen_stages: int = 0) -> Method:
        seed_all(0)
        network: Network = Segmenter(replace(MODEL, frozen_stages=frozen_stages))
        if self.network is not None:
            network = copy.deepcopy(self.network)
        return self.kind(self.params, network).to(self.device)

    def begin(self, method: Method, step: Step) -> Session:
        """Grow and begin a step, as the engine does."""
        seed_all(100 + step.index)
        method.grow(step)
        method.model.norm_frozen = not step.first
        method.train()
        generator = torch.Generator().manual_seed(step.index)
        method.begin_step(self.context(step, generator))
        return Session.start(method, step, OPTIM, TRAIN, self.device, generator)

    def context(self, step: Step, generator: torch.Generator) -> StepContext:
        return StepContext(step, [self.batch(step, seed) for seed in (50, 51)], self.device, generator)

    def train(self, session: Session, step: Step, seeds: range) -> None:
        for seed in seeds if session.method.trains(step) else ():
            update(session, self.batch(step, seed), OPTIM.clip, TRAIN)

    def finish(self, session: Session, step: Step) -> None:
        session.method.end_step(self.context(step, session.generator))
        session.method.eval()  # the engine tests each step

    def batch(
        self, step: Step, seed: int, label: int | None = None, split: Literal["train", "test"] = "train"
    ) -> Batch:
        """Random pictures; labels of the step (in a test also of all before), or one label everywhere."""
        generator = torch.Generator().manual_seed(1000 * step.index + seed)
        images = torch.randint(0, 256, (4, 3, 32, 32), generator=generator, dtype=torch.uint8)
        blocks = torch.randint(0, 7, (4, 4, 4), generator=generator)
        table = torch.from_numpy(self.scenario.label_table(step, split)).long()
        labels = table[blocks.repeat_interleave(8, 1).repeat_interleave(8, 2)]
        if label is not None:
            labels = torch.full_like(labels, label)
        return Batch(images, labels, [f"{seed}-{i}" for i in range(4)]).to(self.device)


def check_declarations(bench: Bench) -> None:
    """What is read before a method is built: its start, and the folder of its saliency maps."""
    start = bench.kind.start(bench.params)
    assert isinstance(start, Start), f"start() gives {start!r}, no Start"
    json.dumps([start.model, start.gathered, start.replaced])  # they are compared with those of other runs
    saliency = getattr(bench.params, "saliency", None)
    assert saliency is None or isinstance(saliency, str), (
        f"the setting 'saliency' names a folder of maps; it is {saliency!r}"
    )


def check_end_of_first_step(bench: Bench) -> None:
    """When step 0 ends the trained model stays, or `start` names the settings of what replaces it."""
    method, first = bench.method(), bench.scenario[0]
    session = bench.begin(method, first)
    bench.train(session, first, range(2))
    before = copy.deepcopy(method.model.state_dict())
    bench.finish(session, first)
    after = method.model.state_dict()
    same = before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    assert same or bench.kind.start(bench.params).replaced is not None, (
        "end_step() changes the model of step 0, from which others could start: let start() say `replaced`"
    )


def check_losses(bench: Bench) -> None:
    """Named, finite, differentiable terms at every step, which training changes the student with."""
    method = bench.method()
    for step in bench.scenario:
        session = bench.begin(method, step)
        if not method.trains(step):
            bench.finish(session, step)
            continue
        losses = method(bench.batch(step, 0))
        assert losses and all(isinstance(name, str) for name in losses), (
            "losses() returns a dict of named terms"
        )
        for name, value in losses.items():
            assert value.shape == (), f"the term '{name}' is a scalar, not {tuple(value.shape)}"
            assert torch.isfinite(value), f"the term '{name}' is {value.item()} at step {step.index}"
        total = sum(losses.values())
        assert total.requires_grad, f"nothing to differentiate at step {step.index}"
        before = {name: p.detach().clone() for name, p in method.model.named_parameters()}
        bench.train(session, step, range(3))
        moved = [name for name, p in method.model.named_parameters() if not torch.equal(before[name], p)]
        assert moved, f"training moved no parameter of the model at step {step.index}"
        bench.finish(session, step)


def check_teacher(bench: Bench) -> None:
    """The teacher is the model of the step before and stays as it was."""
    method = bench.method()
    for step in bench.scenario:
        images = bench.batch(step, 9).images
        expected = None if step.first else method.eval().predict(images).detach()
        session = bench.begin(method, step)
        if method.teacher is None:
            assert step.first or not bench.kind.uses_teacher, "uses_teacher is set, but there is no teacher"
        else:
            assert expected is not None, "there is a teacher in step 0"
            assert not any(p.requires_grad for p in method.teacher.model.parameters()), (
                "gradients reach the teacher"
            )
            state = {name: value.clone() for name, value in method.teacher.model.state_dict().items()}
            bench.train(session, step, range(2))
            for name, value in method.teacher.model.state_dict().items():
                assert torch.equal(state[name], value), f"training changed the teacher's {name}"
            kept = upsample(method.teacher(images).logits, images.shape[-2:], method.model.resize)
            assert torch.allclose(kept, expected, rtol=ROUNDING, atol=ROUNDING), (
                "the teacher is not the model of the step before"
            )
        assert not any(name.startswith("teacher") for name in method.state_dict()), (
            "the teacher is saved twice"
        )
        bench.finish(session, step)


def check_predictions(bench: Bench) -> None:
    """`predict` gives one channel per seen class and background, at full resolution, by every strategy."""
    method = bench.method()
    for step in bench.scenario:
        session = bench.begin(method, step)
        bench.finish(session, step)
        method.eval()
        images = bench.batch(step, 1).images
        with torch.inference_mode():
            plain, maps = method.predict(images), method.attention_maps(images)
            by_strategy = {name: predict(images) for name, predict in method.predictors().items()}
            deployed = method.deployed()(images).logits
        expected = (4, step.num_channels, 32, 32)
        assert by_strategy, "predictors() names no strategy"
        usual = next(iter(by_strategy))
        for name, logits in {"predict()": plain, **by_strategy}.items():
            assert logits.shape == expected, f"{name} gives {tuple(logits.shape)}, expected {expected}"
            assert torch.isfinite(logits).all(), f"{name} gives NaN or infinity"
        assert torch.allclose(plain, by_strategy[usual], rtol=ROUNDING, atol=ROUNDING), (
            f"predict() differs from the first of predictors(), '{usual}'"
        )
        resized = upsample(deployed, images.shape[-2:], method.model.resize)
        assert torch.allclose(plain, resized, rtol=ROUNDING, atol=ROUNDING), (
            "the deployed model predicts something else"
        )
        for name, values in maps.items():
            assert values.dim() == 3 and len(values) == 4, f"the map '{name}' is not B x h x w"
            assert torch.isfinite(values).all(), f"the map '{name}' has NaN or infinity"


def check_known_maps(bench: Bench) -> None:
    """Losses are the same where the outputs of frozen stages are known (`train.cache_frozen`)."""
    if bench.network is not None:  # of Segue's own backbones alone
        return
    plain, known = (_losses_of_steps(bench, known) for known in (False, True))
    for name, value in plain.items():
        difference = abs(known[name] - value)
        assert difference <= ROUNDING * max(1.0, abs(value)), (
            f"{name} is {known[name]}, not {value}, where outputs of frozen stages are known: a method that"
            " uses Output.stages says reads_stages = True"
        )


def _losses_of_steps(bench: Bench, known: bool) -> dict[str, float]:
    method = bench.method(frozen_stages=2)
    found: dict[str, float] = {}
    for step in bench.scenario:
        session = bench.begin(method, step)
        bench.train(session, step, range(2))  # at first the teacher's maps are the student's
        batch = bench.batch(step, 2)
        if known:
            assert isinstance(method.model, Segmenter)
            batch = replace(batch, frozen=method.model.frozen_maps(batch.images, method.reads_stages))
        losses = method(batch)
        found |= {f"{name} of step {step.index}": value.item() for name, value in losses.items()}
        bench.finish(session, step)
    return found


def check_poor_batches(bench: Bench) -> None:
    """Batches of pure background, or with nothing labelled at all, give finite losses and gradients."""
    method = bench.method()
    for step in bench.scenario:
        session = bench.begin(method, step)
        for label in (0, IGNORE) if method.trains(step) else ():
            _check_finite(session, bench.batch(step, 2, label), f"when every label is {label}")
        bench.finish(session, step)


def check_replay(bench: Bench) -> None:
    """A method with a memory of images takes labels of every class so far."""
    if not hasattr(bench.params, "memory"):
        return
    memory = bench.params.memory
    assert isinstance(memory, ReplayConfig), f"the setting 'memory' is {memory!r}, no ReplayConfig"
    method = bench.method()
    for step in bench.scenario:
        session = bench.begin(method, step)
        _check_finite(session, bench.batch(step, 3, split="test"), f"with old labels at step {step.index}")
        bench.finish(session, step)


def _check_finite(session: Session, batch: Batch, when: str) -> None:
    """Finite losses and gradients on a batch."""
    losses = session.method(batch)
    sum(losses.values()).backward()
    bad = [name for name, value in losses.items() if not torch.isfinite(value)]
    assert not bad, f"the terms {bad} are not finite {when}"
    for name, parameter in session.method.named_parameters():
        finite = parameter.grad is None or torch.isfinite(parameter.grad).all()
        assert finite, f"the gradient of {name} is not finite {when}"
    session.optimizer.zero_grad(set_to_none=True)


def check_resume(bench: Bench) -> None:
    """A run restored from its state goes on exactly as if it had never stopped."""
    steps = bench.scenario.steps
    straight = bench.method()
    finished: dict[str, Any] | None = None
    for step in steps[:-1]:
        session = bench.begin(straight, step)
        bench.train(session, step, range(2))
        bench.finish(session, step)
        finished = _copy(straight.state_dict())
    session = bench.begin(straight, steps[-1])
    bench.train(session, steps[-1], range(2))
    inside = _copy(session.state_dict())
    bench.train(session, steps[-1], range(2, 4))
    bench.finish(session, steps[-1])

    # from the last finished step alone, and from a moment inside the step after it
    for state, start in ((None, 0), (inside, 2)):
        resumed = bench.method()
        for step in steps[:-1]:
            resumed.grow(step)
        if finished is not None:
            resumed.load_state_dict(finished, strict=True)
        session = bench.begin(resumed, steps[-1])
        if state is not None:
            session.load_state_dict(state)
        bench.train(session, steps[-1], range(start, 4))
        bench.finish(session, steps[-1])
        _check_equal(resumed.state_dict(), straight.state_dict())


def _check_equal(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    assert ours.keys() == theirs.keys(), (
        f"state differs in {sorted(ours.keys() ^ theirs.keys())[:3]} after a resume"
    )
    for name, value in theirs.items():
        assert torch.equal(ours[name], value), f"{name} differs after a resume"


def _copy(node: Any) -> Any:
    if isinstance(node, torch.Tensor):
        return node.detach().clone()
    if isinstance(node, dict):
        return {key: _copy(value) for key, value in node.items()}
    return [_copy(value) for value in node] if isinstance(node, list | tuple) else node


CHECKS = (
    check_declarations,
    check_losses,
    check_end_of_first_step,
    check_teacher,
    check_predictions,
    check_known_maps,
    check_poor_batches,
    check_replay,
    check_resume,
)
"""the contract, one promise each; the first line of its docstring says which"""
