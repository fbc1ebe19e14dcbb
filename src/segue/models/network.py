"""What every network offers to methods: encode -> fuse -> refine -> classify, with a classifier that grows.

Two kinds: `Segmenter`, Segue's own backbone and head, and `AdoptedNetwork`, a module from elsewhere that runs
whole (models/adopted). Methods use what stands here and nothing else of a network.

Shapes: B batch, H x W pixels, h x w maps, C channels of z, F channels of h, K channels of the logits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from segue.core.config import ModelConfig, validate
from segue.core.errors import UserError, suggest
from segue.core.scenario import Step
from segue.models.classifier import CLASSIFIERS
from segue.models.fusion import FUSIONS, FusionLayer
from segue.models.spec import ClassifierSpec, FusionSpec, name_of, unnamed

FETCHED = ("weights", "pretrained")
"""settings that say where weights come from at first: no part of the structure"""
Resize = Literal["bilinear", "aligned", "nearest"]
"""how logits are brought to the size of the image: bilinear, bilinear with aligned corners, nearest place"""


def at_size(map_BKhw: Tensor, size: Sequence[int], resize: str) -> Tensor:
    """A map at another size; always the same operation, whatever the sizes are."""
    if resize == "nearest":
        return F.interpolate(map_BKhw, size=size, mode="nearest")
    return F.interpolate(map_BKhw, size=size, mode="bilinear", align_corners=resize == "aligned")


@dataclass
class Output:
    """What one pass gives. `features`: z (encoder), z_fused (after the fusion layer, if any), h (head)."""

    logits: Tensor
    features: dict[str, Tensor] = field(default_factory=dict)
    stages: list[Tensor] = field(default_factory=list)


class Classifier(Protocol):
    """h -> logits, in parts: one per step, so that those of old classes can be told from new ones."""

    in_channels: int

    @property
    def parts(self) -> Any: ...

    @property
    def sizes(self) -> tuple[int, ...]: ...

    def grow(self, channels: int, balanced: bool) -> None: ...

    def at_places(self, h_MF: Tensor) -> Tensor: ...

    def __call__(self, h_BFhw: Tensor) -> Tensor: ...


class Network(nn.Module, ABC):
    """Images (uint8 or float in 0..255, B x 3 x H x W, red first) -> `Output`."""

    config: ModelConfig
    mean: Tensor
    std: Tensor
    fusion: nn.Module | None
    classifier: Any
    """a `Classifier`"""
    offers: frozenset[str] = frozenset({"h", "z", "stages", "rows", "backbone", "classifier", "background"})
    """parts that methods may use beside logits (`Method.needs`): maps of head, encoder and its stages, rows
    of a single classifier, a backbone of Segue's own, a classifier that can be replaced, and a background"""
    closed: bool = False
    """whether its channel 0 is never the answer: it knows no background"""
    resize: Resize = "bilinear"
    divisor: int = 1
    """number of pixels that has to divide both sides of an image; others are padded"""

    def __init__(self) -> None:
        super().__init__()
        self.norm_frozen = False
        """batch norm of all but the fusion layer keeps its running statistics even in training mode"""
        self.compiled = False
        """backbone and head go through `torch.compile`"""
        self._frozen: list[nn.Module] = []
        self.settled = nn.ModuleList()
        """fusion layers of earlier methods, now fixed parts of the encoder"""

    @property
    @abstractmethod
    def z_channels(self) -> int:
        """Channels of z."""

    @property
    def h_channels(self) -> int:
        """Channels of h."""
        return self.classifier.in_channels

    @abstractmethod
    def encode(self, images_B3HW: Tensor) -> list[Tensor]:
        """The maps of the encoder's stages; the last one is z."""

    @abstractmethod
    def refine(self, z_fused_BChw: Tensor, images_B3HW: Tensor) -> Tensor:
        """h of images whose z is replaced by another one."""

    @abstractmethod
    def refined(self, images_B3HW: Tensor) -> Tensor:
        """h alone, for a method that classifies it in its own way."""

    def classified(self, h_BFhw: Tensor, images_B3HW: Tensor) -> Tensor:
        """The logits of images whose h is this, as `forward` gives them."""
        return self.classifier(h_BFhw)

    @abstractmethod
    def forward(self, images_B3HW: Tensor, old_z_BChw: Tensor | None = None) -> Output: ...

    @abstractmethod
    def encoder_parameters(self) -> list[nn.Parameter]:
        """Those of the encoder, which learn at the recipe's own rate."""

    @abstractmethod
    def head_parameters(self) -> list[nn.Parameter]:
        """Those between the encoder and the classifier."""

    @abstractmethod
    def freeze_body(self) -> None:
        """Freeze all that comes before the classifier."""

    @abstractmethod
    def freeze_stages(self, count: int, blocks: int = 0) -> None:
        """Freeze the first `count` stages of the encoder, and so many blocks of the next one."""

    @abstractmethod
    def checkpoint(self) -> None:
        """Keep no activations inside the blocks of the encoder: less memory, a second forward pass."""

    @abstractmethod
    def frozen_maps(self, images_B3HW: Tensor, every: bool = False) -> tuple[Tensor, ...]:
        """Outputs of the frozen stages, without gradient: of the last one, or of every one."""

    @property
    def frozen_modules(self) -> list[nn.Module]:
        """The modules whose outputs `frozen_maps` gives."""
        return []

    @property
    def begins_after_frozen(self) -> bool:
        """Whether it can do without its frozen stages where their outputs are known."""
        return False

    def settle(self, specs: Iterable[Mapping[str, Any]]) -> None:
        """Put fusion layers at the end of the encoder, after norms are linked: they compute as they did."""
        for spec in specs:
            self.settled.append(fusion_from(spec, self.z_channels))
            self.freeze(self.settled[-1])

    def through_settled(self, z_BChw: Tensor) -> Tensor:
        for layer in self.settled:
            z_BChw = layer(z_BChw)
        return z_BChw

    def fuse(self, z_BChw: Tensor, old_z_BChw: Tensor | None = None) -> Tensor:
        return z_BChw if self.fusion is None else self.fusion(z_BChw, old_z_BChw)

    def grow(self, step: Step, balanced: bool) -> None:
        """Add the channels of a step; the first step brings background too."""
        self.classifier.grow(len(step.new) + int(step.first), balanced)
        # the newest part alone: moving all of them in each of many steps would take ever longer
        (self.classifier if step.first else self.classifier.parts[-1]).to(self.mean.device)

    def spec(self) -> dict[str, Any]:
        """The structure in words that JSON knows: config, fusion layer, classifier; no weights.

        A fusion layer or classifier of one's own needs a name: see `segue.models.fusion`.
        """
        model = {name: value for name, value in asdict(self.config).items() if name not in FETCHED}
        if self.config.network is None:
            del model["network"]
        if not self.settled:  # a key that older versions do not know
            del model["settled"]
        if not self.config.frozen_blocks:  # another one
            del model["frozen_blocks"]
        return {"model": model, "fusion": self._fusion_spec(), "classifier": self._classifier_spec()}

    def _fusion_spec(self) -> dict[str, Any] | None:
        if self.fusion is None:
            return None
        kind = name_of(self.fusion, FUSIONS)
        if kind is None or not isinstance(self.fusion, FusionLayer):
            also = " It needs spec() and from_spec(channels, spec), too. Or let deployed() leave it out."
            raise unnamed(self.fusion, "fusion", "FUSIONS", also)
        return {"kind": kind, "config": self.fusion.spec()}

    def _classifier_spec(self) -> dict[str, Any]:
        kind = name_of(self.classifier, CLASSIFIERS)
        if kind is None:
            raise unnamed(self.classifier, "classifier", "CLASSIFIERS")
        spec = {"kind": kind, "sizes": list(self.classifier.sizes)}
        width = getattr(self.classifier, "width", None)
        return spec if width is None else {**spec, "width": width}

    def freeze(self, module: nn.Module) -> None:
        """No gradients and no statistics for a part, whatever mode the whole is put in."""
        module.requires_grad_(False)
        if module not in self._frozen:
            self._frozen.append(module)
        module.eval()

    def train(self, mode: bool = True) -> Network:
        super().train(mode)
        for module in self._frozen:
            module.eval()
        if self.norm_frozen:
            # the fusion layer first meets old features in these steps: its statistics are not known before
            own = set(self.fusion.modules()) if self.fusion is not None else set()
            for module in self.modules():
                if isinstance(module, _BatchNorm) and module not in own:
                    module.eval()
        return self


def fusion_from(spec: Mapping[str, Any], z_channels: int) -> nn.Module:
    """The fusion layer that a spec describes, for z of so many channels."""
    wanted = validate(FusionSpec, spec, "fusion")
    return listed(wanted.kind, FUSIONS, "fusion layer").from_spec(z_channels, wanted.config)


def classifier_from(spec: ClassifierSpec, h_channels: int) -> Any:
    """The classifier that a spec describes, without channels yet."""
    width = () if spec.width is None else (spec.width,)
    return listed(spec.kind, CLASSIFIERS, "classifier")(h_channels, *width)


def listed(name: str, table: Mapping[str, Any], what: str) -> Any:
    if name not in table:
        raise UserError(
            f"There is no {what} '{name}'.{suggest(name, table)} One of somebody's own is known once the"
            " file that defines it is imported."
        )
    return table[name]
