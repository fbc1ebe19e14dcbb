"""Two very different methods fit the hooks, and the contract suite notices broken ones."""

from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from segue.core.config import ReplayConfig
from segue.core.scenario import Step
from segue.data.batches import Batch
from segue.losses import cross_entropy
from segue.methods.base import About, Method, StepContext, plain_start
from segue.testing import check_method
from segue.testing.methods import check_end_of_first_step


@dataclass(frozen=True)
class Config:
    weight: float = 10.0


class EwcLike(Method):
    """Importance from the task's gradients, an anchor per parameter, a penalty added to the gradient."""

    Config = Config
    about = About("EWC-like", "-", 2017, keeps="importance")

    def grow(self, step: Step) -> None:
        before = {name: p.detach().clone() for name, p in self.model.named_parameters()}
        super().grow(step)
        for name, parameter in self.model.named_parameters():
            key = name.replace(".", "/")
            if not hasattr(self, f"fisher/{key}"):
                self.register_buffer(f"fisher/{key}", torch.ones_like(parameter))
            if name in before and not step.first:
                self.register_buffer(f"anchor/{key}", before[name])

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        return {"ce": cross_entropy(self.model(batch.images).logits, batch.labels)}

    def after_backward(self) -> None:
        for name, parameter in self.model.named_parameters():
            key = name.replace(".", "/")
            if parameter.grad is None:
                continue
            fisher = getattr(self, f"fisher/{key}")
            fisher.mul_(0.1).add_(0.9 * parameter.grad.square())
            if hasattr(self, f"anchor/{key}"):
                distance = parameter.detach() - getattr(self, f"anchor/{key}")
                parameter.grad.add_(self.config.weight * 2 * fisher * distance)


class PlopLike(Method):
    """A pass over the data before the step, pseudo-labels, and distillation of every encoder stage."""

    Config = Config
    about = About("PLOP-like", "-", 2021, keeps="teacher")
    uses_teacher = True
    balanced_init = True

    def __init__(self, config: Config, model) -> None:
        super().__init__(config, model)
        self.register_buffer("threshold", torch.zeros(()))

    def begin_step(self, ctx: StepContext) -> None:
        self.step = ctx.step
        if self.teacher is not None:
            scores = [self.teacher(batch.images).logits.softmax(1).amax(1).flatten() for batch in ctx.loader]
            self.threshold.copy_(torch.cat(scores).median())

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        out = self.model(batch.images)
        if self.teacher is None:
            return {"ce": cross_entropy(out.logits, batch.labels)}
        old = self.teacher(batch.images, stages=4)
        sure, pseudo = old.logits.softmax(1).max(1)
        size = batch.labels.shape[-2:]
        pseudo = torch.where(sure > self.threshold, pseudo, 0)[:, None].float()
        pseudo = torch.nn.functional.interpolate(pseudo, size=size)[:, 0].long()
        labels = torch.where(batch.labels == 0, pseudo, batch.labels)
        distance = sum((new - kept).square().mean() for new, kept in zip(out.stages, old.stages, strict=True))
        return {"ce": cross_entropy(out.logits, labels), "pod": self.config.weight * distance}


@pytest.mark.parametrize("kind", [EwcLike, PlopLike])
def test_different_methods_fit(kind: type[Method]) -> None:
    check_method(kind)


class Base(Method):
    Config = Config
    about = About("broken", "-", 2026)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        return {"ce": cross_entropy(self.model(batch.images).logits, batch.labels)}


class NoLosses(Base):
    def losses(self, batch: Batch) -> dict[str, Tensor]:
        return {}


class MeanOverLabelled(Base):
    def losses(self, batch: Batch) -> dict[str, Tensor]:
        ce = super().losses(batch)["ce"] * batch.labels.numel()
        return {"ce": ce / (batch.labels != 255).sum()}


class ForgetsItsState(Base):
    """Counts iterations in a plain attribute, which no checkpoint holds."""

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        self.seen = getattr(self, "seen", 0) + 1
        return {"ce": super().losses(batch)["ce"] * self.seen}


class FewChannels(Base):
    def predict(self, images: Tensor) -> Tensor:
        return super().predict(images)[:, 1:]


class TrainsTheTeacher(Base):
    uses_teacher = True

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        if self.teacher is not None:
            self.teacher.model.train()(batch.images)  # moves the running statistics
        return super().losses(batch)


@dataclass(frozen=True)
class Replaying:
    memory: ReplayConfig = field(default_factory=ReplayConfig)


class NewLabelsOnly(Base):
    """Replays, but divides by the pixels that are not of old classes, as if none were."""

    Config = Replaying

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        old = (batch.labels > 0) & (batch.labels < self.step.num_old)
        return {"ce": super().losses(batch)["ce"] / (~old.any()).float()}


@dataclass(frozen=True)
class Numbered:
    memory: int = 4


class ReplaysANumber(Base):
    Config = Numbered


@dataclass(frozen=True)
class Weighted:
    saliency: float = 0.5


class WeighsSaliency(Base):
    Config = Weighted


class StartsAnyhow(Base):
    @classmethod
    def start(cls, config: Config) -> bool:
        return True


class ReplacesTheModel(Base):
    start = staticmethod(plain_start)

    @torch.no_grad()
    def end_step(self, ctx: StepContext) -> None:
        for parameter in self.model.parameters():
            parameter.mul_(0.5)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (NoLosses, "dict of named terms"),
        (MeanOverLabelled, "not finite when every label is 255"),
        (ForgetsItsState, "differs after a resume"),
        (FewChannels, r"predict\(\) gives"),
        (TrainsTheTeacher, "changed the teacher"),
        (WeighsSaliency, "names a folder of maps"),
        (StartsAnyhow, r"start\(\) gives True"),
        (ReplacesTheModel, r"let start\(\) say `replaced`"),
        (NewLabelsOnly, "not finite with old labels at step 1"),
        (ReplaysANumber, "no ReplayConfig"),
    ],
)
def test_broken_methods_are_noticed(kind: type[Method], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_method(kind)


class ReplacesItForItself(ReplacesTheModel):
    start = Method.start


def test_a_method_that_shares_its_first_step_with_none_may_replace_the_model() -> None:
    check_method(ReplacesItForItself, checks=[check_end_of_first_step])
