"""What a method is: a module that owns the model, returns named losses, and carries its own state.

For each step the engine calls
    grow -> begin_step -> [losses -> backward -> after_backward -> optimiser]* -> end_step.
A method owns neither loop nor optimiser. What outlives a step is in its `state_dict`; the shape of that state
follows from the config and the steps grown through, so a resumed run grows, loads strictly and goes on.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from segue.core.declaration import About, BenchmarkValues, Declaration, Start, plain_start
from segue.core.errors import UserError
from segue.core.scenario import Step
from segue.data.batches import Batch
from segue.losses import spatial_attention, upsample
from segue.losses.resizing import resized_as
from segue.losses.unlabelled import without_background
from segue.models._speed.frozen import known_maps
from segue.models.network import Network
from segue.models.segmenter import Teacher

__all__ = ["About", "BenchmarkValues", "Method", "Start", "StepContext", "plain_start"]

WHAT = {
    "h": "the map that its classifier sees (h)",
    "z": "the last map of its encoder (z)",
    "stages": "the maps of its encoder's stages",
    "rows": "a single classifier",
    "backbone": "a backbone of Segue's own",
    "classifier": "a classifier that can be replaced",
    "background": "a channel of background",
}


def parts_text(needs: Iterable[str]) -> str:
    """What a method needs, in words; a part that no network has by its name."""
    return " and ".join(WHAT.get(name, repr(name)) for name in needs)


@dataclass(frozen=True)
class StepContext:
    """All that a method may see when a step begins or ends."""

    step: Step
    loader: Iterable[Batch]
    """one pass over the step's training images, augmented, always the same"""
    device: torch.device
    generator: torch.Generator
    """the method's own random numbers: equal on every process, kept in checkpoints"""


class Method(Declaration, nn.Module, ABC):
    """Base of all methods. Subclasses are final; they set `Config`, `about` and what else they declare.

    A file that ends with `METHOD = Mine` is a method: `segue train mine.py --on voc --split 15-5`.

    Examples:
        >>> from dataclasses import dataclass
        >>> import segue
        >>> from segue.losses import unbiased_cross_entropy, unbiased_distillation
        >>> from segue.testing import check_method
        >>> @dataclass(frozen=True)
        ... class Config:
        ...     kd_weight: float = 1.0
        >>> class Mine(segue.Method):
        ...     Config, about = Config, segue.About("Mine", paper="", year=2025)
        ...     uses_teacher = True
        ...
        ...     def losses(self, batch):
        ...         out = self.model(batch.images)
        ...         losses = {"ce": unbiased_cross_entropy(out.logits, batch.labels, self.step.num_old)}
        ...         if self.teacher is not None:
        ...             old = self.teacher(batch.images)
        ...             losses["kd"] = self.config.kd_weight * unbiased_distillation(out.logits, old.logits)
        ...         return losses
        >>> check_method(Mine)  # every promise of a method, on three small steps
    """

    uses_teacher: ClassVar[bool] = False
    """keep a frozen copy of the model before each incremental step, as `self.teacher`"""
    balanced_init: ClassVar[bool] = False
    """new classifiers start as shares of the background"""
    needs: ClassVar[frozenset[str]] = frozenset()
    """parts of a network that the method needs beside logits: h, z, stages (maps of the encoder's stages),
    rows (those of a single classifier), backbone (Segue's own), classifier (one that may be replaced),
    background (a channel of it)"""
    reads_stages: ClassVar[bool] = False
    """uses `Output.stages`: without it, frozen stages but the last may be left out of that list"""
    freezes_late: ClassVar[bool] = True
    """works with frozen stages that earlier steps have trained"""

    def __init__(self, config: Any, model: Network) -> None:
        super().__init__()
        self._check_needs(model)
        self.config = config
        self.model = model
        self.teacher: Teacher | None = None
        self.new_start = "own"
        """first weights of new classifiers, as the recipe's method.start says"""
        self.step: Step
        """the step that the model has grown for"""
        self._passing = False
        """growing through a finished step: its teacher is not asked for"""

    def _check_needs(self, model: Network) -> None:
        """Refuse a network that lacks what the method works with."""
        if missing := sorted(self.needs - model.offers):
            raise UserError(
                f"{type(self).__name__} needs {parts_text(missing)} of a network."
                f" {model.config.backbone} does not offer it; mib, lwf and finetune need outputs alone."
            )

    @classmethod
    def start(cls, config: Any) -> Start:
        """What decides step 0: everything, unless a method says less, so that runs may share it."""
        everything = {"method": cls.__name__, **asdict(config)}  # never empty: that would be a plain start
        return Start(everything, gathered=everything, replaced=everything)

    @abstractmethod
    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Named, weighted terms; the engine adds them up."""

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """The losses, so that a wrapper such as DistributedDataParallel can stand around the method."""
        unlabelled = without_background(self.step.num_old if self.model.closed else 0)
        with known_maps(batch.images, batch.frozen), resized_as(self.model.resize), unlabelled:
            return self.losses(batch)

    def grow(self, step: Step) -> None:
        """Make room for a step. Called again for finished steps when a run is resumed."""
        self.step = step
        if self.uses_teacher and not step.first and not self._passing:
            self.teacher = Teacher(self.deployed())
        shared = self.new_start == "share" or (self.new_start == "own" and self.balanced_init)
        self.model.grow(step, balanced=shared and not step.first and not self._passing)

    @classmethod
    def trains(cls, step: Step) -> bool:
        """Whether a step has iterations; else `begin_step` and `end_step` do all of it."""
        return True

    def pass_through(self, step: Step) -> None:
        """Grow for a step that is finished: no teacher is made, which would be a copy of all for nothing."""
        self._passing = True
        try:
            self.grow(step)
        finally:
            self._passing = False

    def begin_step(self, ctx: StepContext) -> None:
        """Prepare for a step: the model has grown, the teacher is set."""

    def after_backward(self) -> None:
        """Gradients are there, unscaled and complete; the optimiser has not moved yet."""

    def end_step(self, ctx: StepContext) -> None:
        """The step is trained; its model is still in training mode."""

    def predict(self, images: Tensor) -> Tensor:
        """Logits at the images' resolution, one channel per seen class and background."""
        return upsample(self.model(images).logits, images.shape[-2:], self.model.resize)

    def predictors(self) -> dict[str, Callable[[Tensor], Tensor]]:
        """Strategies of prediction, each from images to logits; the first is that of `predict`."""
        return {"predict": self.predict}

    def deployed(self) -> Network:
        """What `predict` needs of the model, as a copy of its own."""
        return copy.deepcopy(self.model).eval()

    def attention_maps(self, images: Tensor) -> dict[str, Tensor]:
        """Maps (B x h x w) of where the model looks; by default the energy of its features. 0 is neutral."""
        features = self.model(images).features
        last = features.get("z_fused", features.get("h"))
        return {} if last is None else {"energy": spatial_attention(last).squeeze(1)}
