"""Segmenter: encode -> fuse -> refine -> classify, with a classifier that grows step by step.

Shapes: B batch, H x W pixels, h x w maps at the output stride, K channels (background and the classes seen).
Its structure follows from its config and the steps it has grown through, so weights are always loaded
strictly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from segue.core.config import ModelConfig, validate
from segue.core.errors import UserError
from segue.models._speed.checkpointing import checkpoint_blocks, keep_all
from segue.models._speed.compiling import compile_part
from segue.models._speed.fold import fold_norms, link_norms, unlink_norms
from segue.models._speed.frozen import FrozenPart, maps_of
from segue.models.backbone import build_backbone
from segue.models.classifier import Classifier, GrowingClassifier
from segue.models.head import HEADS, DeepLabHead
from segue.models.network import Network, Output, classifier_from, fusion_from
from segue.models.spec import NetworkSpec

__all__ = ["Output", "Segmenter", "Teacher"]


class Segmenter(Network):
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

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        width, dilations = HEADS[config.head]
        self.backbone = build_backbone(config)
        self.fusion: nn.Module | None = None
        self.refiner = DeepLabHead(self.backbone.channels[-1], width, dilations)
        self.classifier: Classifier = GrowingClassifier(width)
        for name in ("mean", "std"):
            values = torch.tensor(getattr(self.backbone, name)).view(1, 3, 1, 1) * 255
            self.register_buffer(name, values, persistent=False)
        link_norms(self, self._maps)
        self.freeze_stages(config.frozen_stages, config.frozen_blocks)
        self.settle(config.settled)

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
            model.fusion = fusion_from(wanted.fusion, model.z_channels)
        model.classifier = classifier_from(wanted.classifier, model.classifier.in_channels)
        for size in wanted.classifier.sizes:
            model.classifier.grow(size, balanced=False)
        return model

    @property
    def z_channels(self) -> int:
        return self.backbone.channels[-1]

    def encode(self, images_B3HW: Tensor) -> list[Tensor]:
        """The backbone's stages; it begins after the frozen ones where their outputs are known."""
        if maps := maps_of(images_B3HW):
            *stages, z_BChw = self._frozen_part.begin_after(self.backbone, maps)
        else:
            *stages, z_BChw = self.backbone(self._normalised(images_B3HW))
        return [*stages, self.through_settled(z_BChw)]

    def _normalised(self, images_B3HW: Tensor) -> Tensor:
        return (images_B3HW.float() - self.mean) / self.std

    def frozen_maps(self, images_B3HW: Tensor, every: bool = False) -> tuple[Tensor, ...]:
        return self._frozen_part.maps(self.backbone, self._normalised(images_B3HW), every)

    @property
    def frozen_modules(self) -> list[nn.Module]:
        return self.backbone.first_stages(self._frozen_part.count, self._frozen_part.blocks)

    @property
    def begins_after_frozen(self) -> bool:
        return self._frozen_part.fits(self.backbone)

    def forward(self, images_B3HW: Tensor, old_z_BChw: Tensor | None = None) -> Output:
        stages = self.encode(images_B3HW)
        z_fused = self.fuse(stages[-1], old_z_BChw)
        h = self.refiner(z_fused)
        features = {"z": stages[-1], "z_fused": z_fused, "h": h}
        return Output(self.classifier(h), features, stages)

    def refine(self, z_fused_BChw: Tensor, images_B3HW: Tensor) -> Tensor:
        return self.refiner(z_fused_BChw)

    def refined(self, images_B3HW: Tensor) -> Tensor:
        return self.refiner(self.fuse(self.encode(images_B3HW)[-1]))

    def _maps(self, images_B3HW: Tensor) -> list[Tensor]:
        """All that there is before the classifier."""
        stages = self.encode(images_B3HW)
        return [*stages, self.refiner(stages[-1])]

    def encoder_parameters(self) -> list[nn.Parameter]:
        return list(self.backbone.parameters())

    def head_parameters(self) -> list[nn.Parameter]:
        return list(self.refiner.parameters())

    def freeze_body(self) -> None:
        for part in (self.backbone, self.refiner):
            self.freeze(part)

    def freeze_stages(self, count: int, blocks: int = 0) -> None:
        """Freeze the first `count` stages of the backbone, and so many blocks of the next one."""
        for module in self.backbone.first_stages(count, blocks):
            self.freeze(module)
        self._frozen_part = FrozenPart(self.backbone, count, blocks)

    def checkpoint(self) -> None:
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


class Teacher:
    """The frozen model of the step before, its norms folded into its convolutions unless it is compiled.

    Not a module: it is rebuilt on resume, never saved or trained.
    """

    def __init__(self, model: Network) -> None:
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
