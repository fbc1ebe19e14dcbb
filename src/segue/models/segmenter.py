"""Segmenter: encode -> fuse -> refine -> classify, with a classifier that grows step by step.

Shapes: B batch, H x W pixels, h x w maps at the output stride, K channels (background and the classes seen).
Its structure follows from its config and the steps it has grown through, so weights are always loaded
strictly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from segue.core.config import ModelConfig, validate
from segue.core.errors import UserError, suggest
from segue.core.scenario import Step
from segue.models._speed.checkpointing import checkpoint_blocks, keep_all
from segue.models._speed.compiling import compile_part
from segue.models._speed.fold import fold_norms, link_norms, unlink_norms
from segue.models._speed.frozen import FrozenPart, maps_of
from segue.models.backbone import build_backbone
from segue.models.classifier import CLASSIFIERS, Classifier, GrowingClassifier
from segue.models.fusion import FUSIONS, FusionLayer
from segue.models.head import HEADS, DeepLabHead
from segue.models.spec import FusionSpec, NetworkSpec, name_of, unnamed

FETCHED = ("weights", "pretrained")
"""settings that say where weights come from at first: no part of the structure"""


@dataclass
class Output:
    """What one pass gives. `features`: z (encoder), z_fused (after the fusion layer, if any), h (head)."""

    logits: Tensor
    features: dict[str, Tensor] = field(default_factory=dict)
    stages: list[Tensor] = field(default_factory=list)


class Segmenter(nn.Module):
    """Images (uint8 or float in 0..255, B x 3 x H x W) -> `Output` with logits at the output stride.

    Examples:
        >>> import segue, torch
        >>> from segue.core.config import ModelConfig
        >>> network = segue.Segmenter(ModelConfig(backbone="tiny", head="tiny", output_stride=8))
        >>> network.grow(segue.Step(index=0, new=(1, 2)), balanced=False)
        >>> out = network.eval()(torch.zeros(1, 3, 64, 64, dtype=torch.uint8))
        >>> out.logits.shape, sorted(out.features)
        (torch.Size([1, 3, 8, 8]), ['h', 'z', 'z_fused'])
    """

    mean: Tensor
    std: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        width, dilations = HEADS[config.head]
        self.backbone = build_backbone(config)
        self.fusion: nn.Module | None = None
        self.refiner = DeepLabHead(self.backbone.channels[-1], width, dilations)
        self.classifier: Classifier = GrowingClassifier(width)
        self.norm_frozen = False
        """batch norm of backbone and head keeps its running statistics even in training mode"""
        self.compiled = False
        """backbone and head go through `torch.compile`"""
        self._frozen: list[nn.Module] = []
        self.settled = nn.ModuleList()
        """fusion layers of earlier methods, now fixed parts of the encoder"""
        for name in ("mean", "std"):
            values = torch.tensor(getattr(self.backbone, name)).view(1, 3, 1, 1) * 255
            self.register_buffer(name, values, persistent=False)
        link_norms(self, self._maps)
        self.freeze_stages(config.frozen_stages)
        for spec in config.settled:  # after the norms are linked: these compute as they always did
            self.settled.append(_fusion_layer(spec, self.backbone.channels[-1]))
            self.freeze(self.settled[-1])

    def spec(self) -> dict[str, Any]:
        """The structure in words that JSON knows: config, fusion layer, classifier; no weights.

        A fusion layer or classifier of one's own needs a name: see `segue.models.fusion`.
        """
        model = {name: value for name, value in asdict(self.config).items() if name not in FETCHED}
        if not self.settled:  # a key that older versions do not know
            del model["settled"]
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

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any], channels: int | None = None) -> Segmenter:
        """The network that a spec describes, with random weights. Nothing is fetched and no file is opened.

        `channels` is the number that the classifier should have: a spec may ask for more than memory holds.

        Examples:
            >>> import segue
            >>> from segue.core.config import ModelConfig
            >>> network = segue.Segmenter(ModelConfig(backbone="tiny", head="tiny", output_stride=8))
            >>> again = segue.Segmenter.from_spec(network.spec())
            >>> again.spec() == network.spec()
            True
        """
        # whatever a stranger's spec says of weights
        described = {**spec, "model": {**spec["model"], "weights": None, "pretrained": False}}
        wanted = validate(NetworkSpec, described, "")
        if channels is not None and channels != sum(wanted.classifier.sizes):
            raise ValueError(f"{channels} names for {sum(wanted.classifier.sizes)} channels")
        model = cls(wanted.model)
        if wanted.fusion is not None:
            model.fusion = _fusion_layer(wanted.fusion, model.backbone.channels[-1])
        classifier = _listed(wanted.classifier.kind, CLASSIFIERS, "classifier")
        width = () if wanted.classifier.width is None else (wanted.classifier.width,)
        model.classifier = classifier(model.classifier.in_channels, *width)
        for size in wanted.classifier.sizes:
            model.classifier.grow(size, balanced=False)
        return model

    def grow(self, step: Step, balanced: bool) -> None:
        """Add the channels of a step; the first step brings background too."""
        self.classifier.grow(len(step.new) + int(step.first), balanced)
        self.classifier.to(self.mean.device)

    def encode(self, images_B3HW: Tensor) -> list[Tensor]:
        """The backbone's stages; it begins after the frozen ones where their outputs are known."""
        if maps := maps_of(images_B3HW):
            *stages, z_BChw = self._frozen_part.begin_after(self.backbone, maps)
        else:
            *stages, z_BChw = self.backbone(self._normalised(images_B3HW))
        for layer in self.settled:
            z_BChw = layer(z_BChw)
        return [*stages, z_BChw]

    def _normalised(self, images_B3HW: Tensor) -> Tensor:
        return (images_B3HW.float() - self.mean) / self.std

    def frozen_maps(self, images_B3HW: Tensor, every: bool = False) -> tuple[Tensor, ...]:
        """The output of the last frozen stage, or of every one, without gradient."""
        return self._frozen_part.maps(self.backbone, self._normalised(images_B3HW), every)

    @property
    def begins_after_frozen(self) -> bool:
        """Whether the backbone can do without its frozen stages where their outputs are known."""
        return self._frozen_part.fits(self.backbone)

    def fuse(self, z_BChw: Tensor, old_z_BChw: Tensor | None = None) -> Tensor:
        return z_BChw if self.fusion is None else self.fusion(z_BChw, old_z_BChw)

    def forward(self, images_B3HW: Tensor, old_z_BChw: Tensor | None = None) -> Output:
        stages = self.encode(images_B3HW)
        z_fused = self.fuse(stages[-1], old_z_BChw)
        h = self.refiner(z_fused)
        features = {"z": stages[-1], "z_fused": z_fused, "h": h}
        return Output(self.classifier(h), features, stages)

    def refined(self, images_B3HW: Tensor) -> Tensor:
        """h alone, for a method that classifies it in its own way."""
        return self.refiner(self.fuse(self.encode(images_B3HW)[-1]))

    def _maps(self, images_B3HW: Tensor) -> list[Tensor]:
        """All that there is before the classifier."""
        stages = self.encode(images_B3HW)
        return [*stages, self.refiner(stages[-1])]

    def freeze(self, module: nn.Module) -> None:
        """No gradients and no statistics for a part, whatever mode the whole is put in."""
        module.requires_grad_(False)
        if module not in self._frozen:
            self._frozen.append(module)
        module.eval()

    def freeze_stages(self, count: int) -> None:
        """Freeze the backbone up to and including its first `count` stages."""
        self._frozen_part = FrozenPart(self.backbone, count)
        for module in self.backbone.first_stages(count):
            self.freeze(module)

    def checkpoint(self) -> None:
        """Keep no activations inside the blocks of the backbone: less memory, a second forward pass."""
        blocks = self.backbone.blocks()
        if not blocks:
            raise UserError(
                f"train.checkpointing finds no blocks in the backbone {self.config.backbone}: leave it out."
            )
        checkpoint_blocks(blocks)

    def compile(self) -> None:
        """Compile backbone and head: what stays the same when the classifier grows."""
        self.compiled = True
        unlink_norms(self)  # a compiler joins norms and convolutions in its own way
        for part in (self.backbone, self.refiner):
            compile_part(part)

    def train(self, mode: bool = True) -> Segmenter:
        super().train(mode)
        for module in self._frozen:
            module.eval()
        if self.norm_frozen:
            # the fusion layer first meets old features in these steps: its statistics are not known before
            for part in (self.backbone, self.refiner, self.classifier):
                for module in part.modules():
                    if isinstance(module, nn.modules.batchnorm._BatchNorm):
                        module.eval()
        return self


def _fusion_layer(spec: Mapping[str, Any], channels: int) -> nn.Module:
    """The layer that a spec describes, for z of so many channels."""
    wanted = validate(FusionSpec, spec, "fusion")
    return _listed(wanted.kind, FUSIONS, "fusion layer").from_spec(channels, wanted.config)


def _listed(name: str, table: Mapping[str, Any], what: str) -> Any:
    if name not in table:
        raise UserError(
            f"There is no {what} '{name}'.{suggest(name, table)} One of somebody's own is known once the"
            " file that defines it is imported."
        )
    return table[name]


class Teacher:
    """The frozen model of the step before, its norms folded into its convolutions unless it is compiled.

    Not a module: it is rebuilt on resume, never saved or trained.
    """

    def __init__(self, model: Segmenter) -> None:
        """Takes the model over: give it a copy of a model that goes on."""
        self.model = model.eval().requires_grad_(False)
        fold_norms(self.model)
        keep_all(self.model)
        if model.compiled:
            self.model.compile()

    def __call__(self, images_B3HW: Tensor, stages: int = 0) -> Output:
        """One pass; the maps of the last few encoder stages are handed out on request."""
        with torch.inference_mode():
            out = self.model(images_B3HW)
        # clones made outside inference mode are ordinary tensors, which autograd may keep
        copies = {id(tensor): tensor.clone() for tensor in out.features.values()}  # z may be z_fused, too
        features = {name: copies[id(tensor)] for name, tensor in out.features.items()}
        chosen = out.stages[-stages:] if stages else []
        return Output(out.logits.clone(), features, [stage.clone() for stage in chosen])
