"""What a method is: a module that owns the model, returns named losses, and carries its own state.

For each step the engine calls
    grow -> begin_step -> [losses -> backward -> after_backward -> optimiser]* -> end_step.
A method owns neither loop nor optimiser. What outlives a step is in its `state_dict`; the shape of that state
follows from the config and the steps grown through, so a resumed run grows, loads strictly and goes on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from segue.core.scenario import Step
from segue.data.steps import Batch
from segue.losses import spatial_attention, upsample
from segue.models.segmenter import Segmenter, Teacher


@dataclass(frozen=True)
class About:
    """What `segue list methods` says of a method."""

    title: str
    paper: str
    year: int
    keeps: str = "nothing"
    """what it keeps between steps: teacher, importance, prototypes, memory"""


@dataclass(frozen=True)
class Setting:
    """Recipe values that a method needs on one data set and split (None: any split)."""

    dataset: str
    split: str | None
    values: Mapping[str, Any]


@dataclass(frozen=True)
class StepContext:
    """All that a method may see when a step begins or ends."""

    step: Step
    loader: Iterable[Batch]
    """one pass over the step's training images, augmented, always the same"""
    device: torch.device
    generator: torch.Generator
    """the method's own random numbers: equal on every process, kept in checkpoints"""


class Method(nn.Module, ABC):
    """Base of all methods. Subclasses are final; they set `Config`, `about` and the flags below."""

    Config: ClassVar[type]
    about: ClassVar[About]
    settings: ClassVar[tuple[Setting, ...]] = ()
    """per-setting values from the papers"""
    offline: ClassVar[bool] = False
    """trains once on all classes"""
    uses_teacher: ClassVar[bool] = False
    """keep a frozen copy of the model before each incremental step, as `self.teacher`"""
    balanced_init: ClassVar[bool] = False
    """new classifiers start as shares of the background"""

    def __init__(self, config: Any, model: Segmenter) -> None:
        super().__init__()
        self.config = config
        self.model = model
        self.teacher: Teacher | None = None

    @abstractmethod
    def begin_step(self, ctx: StepContext) -> None:
        """Prepare for a step: the model has grown, the teacher is set."""

    @abstractmethod
    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Named, weighted terms; the engine adds them up."""

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """The losses, so that a wrapper such as DistributedDataParallel can stand around the method."""
        return self.losses(batch)

    def grow(self, step: Step) -> None:
        """Make room for a step. Called again for finished steps when a run is resumed."""
        if self.uses_teacher and not step.first:
            self.teacher = Teacher(self.model)
        self.model.grow(step, balanced=self.balanced_init and not step.first)

    def after_backward(self) -> None:
        """Gradients are there, unscaled and complete; the optimiser has not moved yet."""

    def end_step(self, ctx: StepContext) -> None:
        """The step is trained; its model is still in training mode."""

    def param_groups(self) -> dict[str, list[nn.Parameter]]:
        """Trainable parameters: backbone, head, and what the method added. Each has its own rate factor."""
        backbone = list(self.model.backbone.parameters())
        head = [*self.model.refiner.parameters(), *self.model.classifier.parameters()]
        known = {id(parameter) for parameter in backbone + head}
        layer = [parameter for parameter in self.parameters() if id(parameter) not in known]
        groups = {"backbone": backbone, "head": head, "layer": layer}
        return {name: [p for p in group if p.requires_grad] for name, group in groups.items()}

    def predict(self, images: Tensor) -> Tensor:
        """Logits at the images' resolution, one channel per seen class and background."""
        return upsample(self.model(images).logits, images.shape[-2:])

    def attention_maps(self, images: Tensor) -> dict[str, Tensor]:
        """Maps in [0, 1] (B x h x w) of where the model looks; by default the energy of its features."""
        return {"energy": peak_to_one(spatial_attention(self.model(images).features["z_fused"]))}


def peak_to_one(maps_B1hw: Tensor) -> Tensor:
    """B x 1 x h x w -> B x h x w, each divided by its maximum."""
    maps_Bhw = maps_B1hw.squeeze(1)
    return maps_Bhw / maps_Bhw.amax((1, 2), keepdim=True).clamp_min(1e-12)
