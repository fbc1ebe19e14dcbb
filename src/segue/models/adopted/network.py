"""An adopted network behind the interface of all networks: it runs whole, as its authors wrote it.

Taps (taps.py) hand out z, h and the logits on the way, put the fusion layer in at z, and end the pass where
nothing more is needed, so that its own resizing, activation and auxiliary heads cost nothing.

Shapes: B batch, H x W pixels, C channels of z, F channels of h, K channels of the logits, h x w maps.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from segue.core.config import ModelConfig, validate
from segue.core.errors import UserError
from segue.models._speed.fold import link_norms
from segue.models._speed.frozen import known_maps, maps_of
from segue.models.adopted.frozen import AnswerForm, answer_of, answering, made
from segue.models.adopted.grow import NEVER, AdoptedClassifier, GrowingLayer
from segue.models.adopted.parts import Adoption
from segue.models.adopted.taps import EncoderTap, InputTap, OutputTap, Pass, passing
from segue.models.adopted.watch import equal
from segue.models.network import Network, Output, at_size, classifier_from, fusion_from
from segue.models.spec import NetworkSpec

KIND = "adopted"
"""name of the classifier in a spec"""


class AdoptedNetwork(Network):
    """Images (uint8 or float in 0..255, B x 3 x H x W, red first) -> `Output`, logits at its own stride."""

    def __init__(self, config: ModelConfig, module: nn.Module) -> None:
        """Takes the module over; its classifiers make room for growing ones, which have no channels yet."""
        super().__init__()
        assert config.network is not None
        self.config, self.adoption = config, adoption_of(config.network)
        self.parts = parts = self.adoption.parts
        self.resize, self.divisor = parts.resize, parts.divisor
        have_z = set() if parts.encoder is None else {"z"}
        have_stages = {"stages"} if parts.stages > 1 else set()
        have_rows = {"rows"} if len(parts.classifiers) == 1 else set()
        self.closed = self.adoption.closed
        have_background = set() if self.closed else {"background", "classifier"}
        self.offers = frozenset({"h"} | have_z | have_stages | have_rows | have_background)
        self.body = module
        for index, path in enumerate(parts.classifiers):
            front = (0.0 if index else NEVER) if self.closed else None
            self.body.set_submodule(path, GrowingLayer(self.body.get_submodule(path), front))
        self.fusion: nn.Module | None = None
        self._form: AnswerForm | None = None
        """how the encoder answers, if it is frozen"""
        numbers, scale = self.adoption.normalisation, 255 / self.adoption.normalisation.white
        for name in ("mean", "std"):
            values = torch.tensor(getattr(numbers, name)).view(1, 3, 1, 1) * scale
            self.register_buffer(name, values, persistent=False)
        self._tap()
        for name, parameter in self.body.named_parameters():
            parameter.requires_grad_(not _under(name, parts.unused))
        link_norms(self, self._maps)
        self.settle(config.settled)
        self.freeze_stages(config.frozen_stages, config.frozen_blocks)
        if config.frozen_stages:  # its answers may be known later
            self._form = AnswerForm(*self._encoder_answer(self._picture(3)))

    def _tap(self) -> None:
        parts = self.parts
        if parts.encoder is not None:
            self.body.get_submodule(parts.encoder).register_forward_hook(EncoderTap(parts.place))
        if parts.before is not None:
            self.body.get_submodule(parts.before).register_forward_pre_hook(InputTap())
        elif parts.after is not None:
            self.body.get_submodule(parts.after).register_forward_hook(OutputTap())

    def _picture(self, times: int) -> Tensor:
        side = times * max(32, self.divisor)
        shape = (1, 3, side, side)
        return torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(0)).to(self.mean)

    def _encoder_answer(self, images_B3HW: Tensor) -> tuple[Any, Tensor]:
        encoder = self.body.get_submodule(self.parts.encoder or "")
        return answer_of(self.body, encoder, self._prepared(images_B3HW))

    def frozen_maps(self, images_B3HW: Tensor, every: bool = False) -> tuple[Tensor, ...]:
        return made(*self._encoder_answer(images_B3HW))

    @property
    def frozen_modules(self) -> list[nn.Module]:
        return [self.body.get_submodule(self.parts.encoder or "")]

    @property
    def begins_after_frozen(self) -> bool:
        """Whether h is the same with a known answer of the encoder, for images of another size as well."""
        images, trained = self._picture(5), self.training
        self.eval()  # nothing is dropped
        try:
            with torch.no_grad():
                expected = self.refined(images)
                with known_maps(images, self.frozen_maps(images)):
                    found = self.refined(images)
        except (RuntimeError, AssertionError, TypeError, ValueError, IndexError, KeyError):
            return False
        finally:
            self.train(trained)
        return found.shape == expected.shape and equal(found, expected)

    @classmethod
    def with_rows(cls, config: ModelConfig, module: nn.Module) -> AdoptedNetwork:
        """The network with the channels that the module came with, in the order of its adoption."""
        parts = adoption_of(config.network or {}).parts
        rows = [module.get_submodule(path) for path in parts.classifiers]
        network = cls(config, module)
        adoption, channels = network.adoption, rows[0].out_channels
        network.classifier.grow(2 if adoption.binary else channels + int(adoption.closed), balanced=False)
        network.classifier.to(rows[0].weight.device)
        with torch.no_grad():
            for layer, old in zip(network.classifier.layers, rows, strict=True):
                for name, ours in layer.parts[0].named_parameters():
                    theirs = getattr(old, name)
                    if adoption.binary:  # the logit of background is 0
                        theirs = torch.cat([torch.zeros_like(theirs), theirs])
                    ours.copy_(theirs[adoption.order] if adoption.order else theirs)
        return network.train(module.training)

    @classmethod
    def from_spec(
        cls, spec: Mapping[str, Any], module: nn.Module, channels: int | None = None
    ) -> AdoptedNetwork:
        """The network that a spec describes, around a module built for it; weights are yet to come."""
        wanted = validate(NetworkSpec, {**spec, "model": {**spec["model"], "weights": None}}, "")
        if channels is not None and channels != sum(wanted.classifier.sizes):
            raise ValueError(f"{channels} names for {sum(wanted.classifier.sizes)} channels")
        network = cls(wanted.model, module)
        if wanted.fusion is not None:
            network.fusion = fusion_from(wanted.fusion, network.z_channels)
        if wanted.classifier.kind != KIND:
            network.classifier = classifier_from(wanted.classifier, network.h_channels)
        for size in wanted.classifier.sizes:
            network.classifier.grow(size, balanced=False)
        return network

    def _maps(self, images_B3HW: Tensor) -> list[Tensor]:
        out = self(images_B3HW)
        return [*out.stages, out.features["h"]]

    def spec(self) -> dict[str, Any]:
        """As of any network; of a file of code the name alone, not where it lies."""
        described = super().spec()
        source = self.adoption.source
        if "code" in source:
            told = {**source, "code": Path(source["code"]).name}
            described["model"]["network"] = {**described["model"]["network"], "source": told}
        return described

    def built_by(self, code: str) -> AdoptedNetwork:
        """The same network, which recipes build by a file of code from now on."""
        source = {"kind": "python", "name": code.rpartition(":")[2], "code": code}
        self.config = replace(self.config, network=asdict(replace(self.adoption, source=source)))
        self.adoption = adoption_of(self.config.network or {})
        return self

    def _classifier_spec(self) -> dict[str, Any]:
        if self.replaced is not None:
            return super()._classifier_spec()
        return {"kind": KIND, "sizes": list(self.classifier.sizes)}

    @property
    def classifier(self) -> Any:  # type: ignore[override]
        """The network's own layers, or what a method has put in their place (`network.classifier = ...`)."""
        return AdoptedClassifier(self._layers) if self.replaced is None else self.replaced

    @property
    def replaced(self) -> nn.Module | None:
        """The classifier of a method that stands for the network's own one; None: none does."""
        return self._modules.get("classifier")  # where torch keeps a module that is set under this name

    @property
    def _layers(self) -> list[GrowingLayer]:
        """The network's own classifiers; without channels if a method has another one."""
        return [self.body.get_submodule(path) for path in self.parts.classifiers]  # type: ignore[misc]

    @property
    def z_channels(self) -> int:
        return self.parts.z_channels

    # The pass

    def _run(self, images_B3HW: Tensor, until: str, fuse: Callable[[Tensor], Tensor] | None) -> Pass:
        settle = self.through_settled if len(self.settled) else None
        seen = Pass(until, fuse, len(self.parts.classifiers), settle)
        known: AbstractContextManager[None] = nullcontext()
        if self._form is not None and (maps := maps_of(images_B3HW)):
            known = answering(self.body.get_submodule(self.parts.encoder or ""), self._form, maps)
        with known, passing(seen):
            self.body(self._prepared(images_B3HW))
        return seen

    def _prepared(self, images_B3HW: Tensor) -> Tensor:
        """As the network wants its input: normalised, in its order of colours, of a size that it takes."""
        images = images_B3HW.flip(1) if self.adoption.normalisation.bgr else images_B3HW
        values = ((images.float() - self.mean) / self.std).to(self._dtype)
        height, width = values.shape[-2:]
        below, right = (a - b for a, b in zip(self._padded(height, width), (height, width), strict=True))
        return F.pad(values, (0, right, 0, below), mode="replicate") if below or right else values

    def _padded(self, height: int, width: int) -> list[int]:
        """The size of an image when it comes to the network."""
        sides = [max(height, width)] * 2 if self.parts.square else [height, width]
        sides = [side if side >= self.parts.least else self.parts.least for side in sides]
        return [side + -side % self.divisor for side in sides]

    @property
    def _dtype(self) -> torch.dtype:
        return self._layers[0].dtype

    def encode(self, images_B3HW: Tensor) -> list[Tensor]:
        return self._run(images_B3HW, "z", None).stages

    def refine(self, z_fused_BChw: Tensor, images_B3HW: Tensor) -> Tensor:
        """h of images whose z is replaced; the encoder runs again, since the head may use its other maps."""
        return self._h(self._run(images_B3HW, "h", lambda _: z_fused_BChw))

    def refined(self, images_B3HW: Tensor) -> Tensor:
        return self._h(self._run(images_B3HW, "h", self.fuse))

    def _h(self, seen: Pass) -> Tensor:
        if seen.h is not None:
            return seen.h
        inputs = [seen.inputs[id(layer)] for layer in self._layers]
        return inputs[0] if len(inputs) == 1 else torch.cat(inputs, dim=1)

    def forward(self, images_B3HW: Tensor, old_z_BChw: Tensor | None = None) -> Output:
        fuse = None if self.fusion is None else lambda z_BChw: self.fuse(z_BChw, old_z_BChw)
        seen = self._run(images_B3HW, "logits" if self.replaced is None else "h", fuse)
        features = {"h": self._h(seen)}
        if seen.z is not None and seen.z_fused is not None:
            features |= {"z": seen.z, "z_fused": seen.z_fused}
        if self.replaced is not None:
            logits = self.replaced(features["h"])
        else:
            logits = sum(seen.logits[id(layer)] for layer in self._layers)
        return Output(self._sized(logits, images_B3HW), features, seen.stages)

    def classified(self, h_BFhw: Tensor, images_B3HW: Tensor) -> Tensor:
        return self._sized(self.classifier(h_BFhw), images_B3HW)

    def _sized(self, logits_BKhw: Tensor, images_B3HW: Tensor) -> Tensor:
        """Logits that cover the image: a padded one's are brought to its pixels and cut."""
        parts, (height, width) = self.parts, images_B3HW.shape[-2:]
        if parts.inner is not None:
            size = [side * parts.inner_factor for side in logits_BKhw.shape[-2:]]
            logits_BKhw = at_size(logits_BKhw, size, parts.inner)
        if (padded := self._padded(height, width)) == [height, width]:
            return logits_BKhw
        return at_size(logits_BKhw, padded, self.resize)[..., :height, :width]

    # What training does with it

    def encoder_parameters(self) -> list[nn.Parameter]:
        return [p for name, p in self.body.named_parameters() if _under(name, self.parts.encoder_modules)]

    def head_parameters(self) -> list[nn.Parameter]:
        own = {id(p) for p in (*self.encoder_parameters(), *self.classifier.parameters())}
        return [parameter for parameter in self.body.parameters() if id(parameter) not in own]

    def freeze_body(self) -> None:
        kept = {id(module) for layer in self._layers for module in layer.modules()}
        kept_parameters = {id(parameter) for layer in self._layers for parameter in layer.parameters()}
        for parameter in self.body.parameters():
            parameter.requires_grad_(parameter.requires_grad and id(parameter) in kept_parameters)
        for module in self.body.modules():
            if not any(id(inner) in kept for inner in module.modules()):
                self.freeze(module)

    def freeze_stages(self, count: int, blocks: int = 0) -> None:
        """Freeze the encoder: all of its stages, which other libraries do not tell apart, or none."""
        if blocks:
            raise UserError(
                f"model.frozen_blocks={blocks}: the blocks of {self.config.backbone} are not known. Set"
                " model.frozen_blocks=0."
            )
        if count not in (0, self.parts.stages):
            raise UserError(
                f"model.frozen_stages={count}: the stages of {self.config.backbone} can be frozen together"
                f" alone. Set model.frozen_stages={self.parts.stages}, or 0."
            )
        for path in self.parts.encoder_modules if count else ():
            owner, _, name = path.rpartition(".")
            part = getattr(self.body.get_submodule(owner), name)
            if isinstance(part, nn.Parameter):
                part.requires_grad_(False)
            else:
                self.freeze(part)

    def checkpoint(self) -> None:
        raise UserError(
            f"train.checkpointing does not know the blocks of {self.config.backbone}: leave it out."
        )

    def compile(self, *args: Any, **kwargs: Any) -> None:
        raise UserError(f"train.compile does not know the parts of {self.config.backbone}: leave it out.")

    def own_module(self) -> nn.Module:
        """The module as its authors know it, with one plain classifier for all channels."""
        if self.fusion is not None or len(self.settled):
            raise UserError(
                f"The network has a fusion layer at z; {self.config.backbone} has no place for it: save a"
                " model folder, or extend with method.params.layer.projection=false"
                " method.params.layer.fusion=false method.params.layer.attention=false."
            )
        if self.replaced is not None:
            raise UserError(
                f"The network has the classifier of a method; {self.config.backbone} has no place for it:"
                " save a model folder."
            )
        return self.plain_module()

    def plain_module(self) -> nn.Module:
        """The module without what is put into it here."""
        body = copy.deepcopy(self).body
        order = [channel - int(self.closed) for channel in self.own_order()]
        for path in self.parts.classifiers:
            layer = body.get_submodule(path)
            whole = copy.deepcopy(layer).add(len(order))
            for name, values in list(whole.named_parameters()):
                if self.replaced is None:  # else the rows are of no use to anyone
                    rows = torch.cat([getattr(part, name) for part in layer.parts])[order]
                    setattr(whole, name, nn.Parameter(rows.detach().to(values.dtype)))
            body.set_submodule(path, whole)
        return _plain(body).eval()

    def own_order(self) -> list[int]:
        """For each channel of the module as it is saved, the channel here."""
        count, order = sum(self.classifier.sizes), self.adoption.order
        if self.closed:
            return list(range(1, count))
        now = {then: channel for channel, then in enumerate(order)}
        return [now.get(channel, channel) for channel in range(count)]


def adoption_of(described: Mapping[str, Any]) -> Adoption:
    return validate(Adoption, described, "model.network")


def _under(name: str, prefixes: list[str]) -> bool:
    return any(name == prefix or name.startswith(f"{prefix}.") for prefix in prefixes)


def _plain(module: nn.Module) -> nn.Module:
    """Without taps and quick ways of computing."""
    for each in module.modules():
        each.__dict__.pop("forward", None)
        for hooks in (each._forward_hooks, each._forward_pre_hooks):
            for key in [
                key for key, hook in hooks.items() if isinstance(hook, EncoderTap | InputTap | OutputTap)
            ]:
                del hooks[key]
    return module
