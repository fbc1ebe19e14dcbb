"""A method in its second step, and the model that it had after the first."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from segue.core import plugins
from segue.core.scenario import Step
from segue.engine.train import Session
from segue.methods.base import Method
from segue.models.classifier import GrowingClassifier
from segue.models.segmenter import Output, Segmenter
from segue.testing import Bench


@dataclass
class StepOne:
    bench: Bench
    method: Method
    session: Session
    step: Step
    before: Segmenter
    """the model after step 0"""

    def old(self, images: Tensor) -> Output:
        with torch.no_grad():
            return self.before(images)

    def new(self, images: Tensor) -> Output:
        with torch.no_grad():
            return self.method.model(images)


def step_one(name: str, params: Mapping[str, Any] | None = None, first: int = 3, updates: int = 2) -> StepOne:
    """Some updates in step 0 and in step 1."""
    bench = Bench(plugins.find("method", name), dict(params or {}))
    method = bench.method()
    zero, one = bench.scenario.steps[:2]
    session = bench.begin(method, zero)
    bench.train(session, zero, range(first))
    bench.finish(session, zero)
    settle(method.model, bench.batch(zero, 0).images)
    before = copy.deepcopy(method.model).eval()
    session = bench.begin(method, one)
    bench.train(session, one, range(10, 10 + updates))
    return StepOne(bench, method, session, one, before)


def _by_part(classifier: GrowingClassifier, logits: Tensor) -> dict[nn.Module, Tensor]:
    """Mean logits of each part of a classifier."""
    means = logits.mean((0, 2, 3)).split(classifier.sizes)
    return dict(zip(classifier.parts, means, strict=True))


def settle(model: Segmenter, images: Tensor, sharp: float = 5.0) -> None:
    """Statistics and scores as after long training: every class is the answer somewhere, some are sure."""
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    outputs = [m for m in model.classifier.modules() if isinstance(m, nn.Conv2d) and m.kernel_size == (1, 1)]
    means: dict[nn.Module, Tensor] = {}
    hooks = [
        m.register_forward_hook(lambda m, _, out: means.update({m: out.mean((0, 2, 3))})) for m in outputs
    ]
    if isinstance(model.classifier, GrowingClassifier):  # its parts are one convolution
        hooks.append(model.classifier.register_forward_hook(lambda m, _, out: means.update(_by_part(m, out))))
    with torch.no_grad():
        for norm in norms:
            norm.momentum = 1.0
        model.train()(images)
        model.eval()(images)
        for conv in outputs:
            conv.weight *= sharp
            conv.bias.sub_(means[conv]).mul_(sharp)
    for hook in hooks:
        hook.remove()
    for norm in norms:
        norm.momentum = 0.1


def state_of(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in module.state_dict().items()}
