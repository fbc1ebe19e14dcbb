"""What a method is: a module that owns the model, returns named losses, and carries its own state.

For each step the engine calls
    grow -> begin_step -> [losses -> backward -> after_backward -> optimiser]* -> end_step.
A method owns neither loop nor optimiser. What outlives a step is in its `state_dict`; the shape of that state
follows from the config and the steps grown through, so a resumed run grows, loads strictly and goes on.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from segue.core.config import MemoryConfig
from segue.core.scenario import Step
from segue.data.batches import Batch
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
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """named sets of values for `Config`, chosen by its field `variant`"""
    offline: ClassVar[bool] = False
    """trains once on all classes"""
    uses_teacher: ClassVar[bool] = False
    """keep a frozen copy of the model before each incremental step, as `self.teacher`"""
    balanced_init: ClassVar[bool] = False
    """new classifiers start as shares of the background"""
    plain_start: ClassVar[bool] = False
    """step 0 is cross-entropy on the bare network: methods that have this in common may share it"""
    gathers: ClassVar[bool] = False
    """gathers state while it trains, so that a trained model alone is no start for it"""
    later: ClassVar[tuple[str, ...]] = ()
    """settings that play no part in step 0"""

    def __init__(self, config: Any, model: Segmenter) -> None:
        super().__init__()
        self.config = config
        self.model = model
        self.teacher: Teacher | None = None

    @classmethod
    def keeps(cls, config: Any) -> str:
        """What it keeps between steps with these settings: an optional memory may be off."""
        return cls.about.keeps

    @classmethod
    def first_step(cls, config: Any) -> dict[str, Any]:
        """The settings that decide the model of step 0; none for a plain start."""
        return {} if cls.plain_start else cls.own_start(config)

    @classmethod
    def own_start(cls, config: Any) -> dict[str, Any]:
        """The settings that decide all that a step 0 of its own leaves."""
        params = {name: value for name, value in asdict(config).items() if name not in cls.later}
        return {"method": cls.__name__, **params}

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
            self.teacher = Teacher(self.deployed())
        self.model.grow(step, balanced=self.balanced_init and not step.first)

    def after_backward(self) -> None:
        """Gradients are there, unscaled and complete; the optimiser has not moved yet."""

    def end_step(self, ctx: StepContext) -> None:
        """The step is trained; its model is still in training mode."""

    def saliency(self) -> str | None:
        """Folder of saliency maps for the training images, which batches then hold; None: none are read."""
        return None

    def replay(self) -> MemoryConfig | None:
        """Images of earlier steps that are shown again; None: none. It follows from the config alone."""
        return None

    def param_groups(self) -> dict[str, list[nn.Parameter]]:
        """Trainable parameters, each group with its own rate factor: backbone, head, the classifier of new
        classes (in incremental steps), and what the method added."""
        model = self.model
        backbone = list(model.backbone.parameters())
        new = list(model.classifier.parts[-1].parameters()) if len(model.classifier.parts) > 1 else []
        known = {id(parameter) for parameter in new}
        both = (*model.refiner.parameters(), *model.classifier.parameters())
        head = [parameter for parameter in both if id(parameter) not in known]
        known |= {id(parameter) for parameter in backbone + head}
        layer = [parameter for parameter in self.parameters() if id(parameter) not in known]
        groups = {"backbone": backbone, "head": head, "new": new, "layer": layer}
        return {name: [p for p in group if p.requires_grad] for name, group in groups.items()}

    def predict(self, images: Tensor) -> Tensor:
        """Logits at the images' resolution, one channel per seen class and background."""
        return upsample(self.model(images).logits, images.shape[-2:])

    @property
    def strategies(self) -> tuple[str, ...]:
        """Ways to predict at this step; the first is that of `predict`."""
        return ("predict",)

    def predict_by(self, images: Tensor, strategies: Sequence[str]) -> dict[str, Tensor]:
        """Logits by several of these strategies, from one pass."""
        return {name: self.predict(images) for name in strategies}

    def deployed(self) -> Segmenter:
        """What `predict` needs of the model, as a copy of its own."""
        return copy.deepcopy(self.model).eval()

    def attention_maps(self, images: Tensor) -> dict[str, Tensor]:
        """Maps (B x h x w) of where the model looks; by default the energy of its features. 0 is neutral."""
        return {"energy": spatial_attention(self.model(images).features["z_fused"]).squeeze(1)}
