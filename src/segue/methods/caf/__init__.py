"""CAF: Continual Attentive Fusion for incremental semantic segmentation (Yang et al., IEEE TMM 2022).

Three parts on top of the unbiased cross-entropy (eq. 13): a layer that fuses the features of the new and the
frozen old model (models/caf.py), a distillation of features weighted by their own attention
(losses/features.py), and a distillation of outputs whose background term is re-weighted per image. Where
paper and released code differ there is a field below; `variant` names a set of them (docs/caf.md).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import asdict

import torch
from torch import Tensor, nn

from segue.core.declaration import About, BenchmarkValues, ClassMemory, Start
from segue.core.errors import UserError
from segue.core.scenario import Step
from segue.data.batches import Batch
from segue.losses import (
    attend,
    attentive_distance,
    background_balance,
    channel_attention,
    cross_entropy,
    incremental_losses,
    spatial_attention,
    unbiased_cross_entropy,
    unbiased_distillation,
    upsample,
    wide,
)
from segue.losses.guided import label_guided_distillation, selective_labels
from segue.methods._stores import Store, rehearsal_loss
from segue.methods._stores.features import FeatureMemory
from segue.methods._stores.gaussians import Gaussians
from segue.methods._stores.imagined import Imagined
from segue.methods._stores.mixtures import Mixtures
from segue.methods.base import Method, StepContext
from segue.methods.caf.config import PUBLISHED, VARIANTS, Config
from segue.models.caf import CafLayer, Excitation
from segue.models.network import Network, Output
from segue.models.segmenter import Segmenter

SURE = 0.7
"""least probability of an old class that becomes a label, where labels are selective"""
TEACHER_Z = {"raw": "z", "fused": "z_fused"}


class CAF(Method):
    Config = Config
    about = About(
        "Continual Attentive Fusion",
        "Yang et al., IEEE TMM",
        2022,
        published="45.3*",
        keeps="teacher",
        of_class=ClassMemory(h=64, numbers=2 * 64),
    )
    benchmark_values = (
        BenchmarkValues("ade20k", None, {"optim": {"lr_next": 0.01}}),
        # a small network that is trained from nothing needs room to learn
        BenchmarkValues("scenes", None, {"method": {"params": {**PUBLISHED, "ad_weight": 0.01}}}),
    )
    variants = VARIANTS
    uses_teacher = True
    balanced_init = True
    needs = frozenset({"h", "z"})

    @classmethod
    def start(cls, config: Config) -> Start:
        return Start({"layer": asdict(config.layer)} if config.layered_start else {})

    def __init__(self, config: Config, model: Network) -> None:
        super().__init__(config, model)
        widths = {"z": model.z_channels, "h": model.h_channels}
        if config.layered_start:
            model.fusion = CafLayer(widths["z"], config.layer)
        self.memory: Store | None = None
        self.imagined: Imagined | None = None
        if config.rehearsal.weight and config.rehearsal.store == "imagined":
            self.imagined = self.imagination(model)
        elif config.rehearsal.weight:
            self.memory = self.store(widths["h"])
        self.excitation = nn.ModuleDict()
        for name in config.ad.maps.split("+") if config.ad.channel else ():
            self.excitation[name] = Excitation(widths[name], trained=config.ad.excitation == "trained")

    def store(self, channels: int) -> Store:
        """What is kept of h between steps."""
        rehearsal = self.config.rehearsal
        if rehearsal.store != "features":
            kind = Mixtures if rehearsal.store == "mixtures" else Gaussians
            return kind(channels, rehearsal.per_class)
        return FeatureMemory(channels, rehearsal.per_class, rehearsal.background)

    def imagination(self, model: Network) -> Imagined:
        """What stands in for a memory: it needs the statistics of the head's own norm."""
        if not isinstance(model, Segmenter):
            raise UserError(
                f"method.params.rehearsal.store=imagined reads the norm of a head of Segue's own, which"
                f" {model.config.backbone} does not have: use rehearsal.store=features."
            )
        return Imagined(self.config.rehearsal.per_class, self.config.rehearsal.background)

    def grow(self, step: Step) -> None:
        super().grow(step)
        if self.config.layer.enabled and step.index == self.config.layer_since == 1:
            layer = CafLayer(self.model.z_channels, self.config.layer)
            self.model.fusion = layer.to(self.model.mean.device)
        if self.memory is not None:
            self.memory.grow(step)
        if not step.first:
            for excitation in self.excitation.values():
                excitation.remember()

    def begin_step(self, ctx: StepContext) -> None:
        self.generator = ctx.generator
        if self.imagined is not None and self.teacher is not None:
            norm = self.model.refiner.norm[0]
            self.imagined.begin(self.teacher, norm, ctx.loader, ctx.step)

    def end_step(self, ctx: StepContext) -> None:
        if self.memory is not None:
            self.model.eval()
            self.memory.collect(self.model.refined, ctx.loader, ctx.step)
            self.model.train()

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        if self.teacher is None:
            return {"ce": cross_entropy(self.model(batch.images).logits, batch.labels)}
        config, old = self.config, self.teacher(batch.images)
        out = self.model(batch.images, self.old_features(old))
        terms = self.pixel_terms(out, old, batch.labels)
        if config.ad_weight:
            terms["ad"] = config.ad_weight * self.feature_distance(out, old)
        if (source := self.imagined or self.memory) is not None:
            drawn, room = source.draw(self.generator), source.per_class
            given = self.model.classifier, out.logits, batch.labels, self.step
            terms["rehearsal"] = config.rehearsal.weight * rehearsal_loss(drawn, room, *given)
        return terms

    def pixel_terms(self, out: Output, old: Output, labels: Tensor) -> dict[str, Tensor]:
        """L_SEG and L_D (eq. 12, 14), or what MBS has in their place."""
        config, num_old = self.config, self.step.num_old
        if config.labels == config.kd_target == "unbiased" and config.kd_weight:
            given = out.logits, old.logits, labels, num_old, self.background_weight(old.logits)
            labelled, distilled = incremental_losses(*given)
            return {"ce": labelled, "kd": self.distillation_weight * distilled}
        if config.labels == "selective":
            filled = selective_labels(labels, old.logits, SURE)
            terms = {"ce": cross_entropy(out.logits, filled)}
        else:
            terms = {"ce": unbiased_cross_entropy(out.logits, labels, num_old)}
        if config.kd_weight and config.kd_target == "guided":
            # a mean over all channels: brought to the scale of a mean over the old ones
            scale = out.logits.shape[1] / num_old
            distilled = scale * label_guided_distillation(out.logits, old.logits, labels)
            terms["kd"] = self.distillation_weight * distilled
        elif config.kd_weight:
            given = old.logits, self.background_weight(old.logits), labels.shape[-2:]
            terms["kd"] = self.distillation_weight * unbiased_distillation(out.logits, *given)
        return terms

    def old_features(self, old: Output) -> Tensor | None:
        """The teacher's z for the layer; None in a share of the iterations, and where nothing is fused."""
        if not self.config.layer.fusion:
            return None
        skips = torch.rand((), generator=self.generator).item() < self.config.modality_dropout
        return None if skips else old.features[TEACHER_Z[self.config.old_features]]

    @property
    def distillation_weight(self) -> float:
        """lambda_D for the mean over old channels, which is what the losses give.

        With `growth` it counts as much as the cross-entropy, and more the fewer of the classes are new: a
        weight that fits few old channels then fits many, and one new class as well as five.
        """
        weight, step = self.config.kd_weight, self.step
        if self.config.kd_norm == "channels":
            return weight
        return weight * step.num_old * math.sqrt(len(step.seen) / len(step.new))

    def background_weight(self, old_logits: Tensor) -> Tensor | None:
        """gamma (eq. 11), bounded by choice: an image full of foreground gives a weight of thousands."""
        if not self.config.balanced:
            return None
        return background_balance(old_logits, self.config.gamma).clamp_max(self.config.gamma_max or math.inf)

    def feature_distance(self, out: Output, old: Output) -> Tensor:
        """L_AD (eq. 8), over the chosen maps."""
        ad, total = self.config.ad, 0.0
        for name in ad.maps.split("+"):
            source = out.features["z_fused" if name == "z" else "h"]
            target = old.features[TEACHER_Z[ad.target] if name == "z" else "h"]
            with torch.autocast(source.device.type, enabled=False):
                source, target = self.attended(source, name), self.attended(target, name, old=True)
                unit_energy = ad.form == "product" and ad.spatial
                total = total + attentive_distance(source, target, ad.norm, unit_energy)
        return total

    def attended(self, m: Tensor, name: str, old: bool = False) -> Tensor:
        """AD (eq. 7) of a map, with the chosen parts."""
        ad, m = self.config.ad, wide(m)
        channel = channel_attention(m, *self.excitation[name].weights(old)) if ad.channel else None
        return attend(m, channel, ad.spatial, ad.form, ad.detach)

    def predictors(self) -> dict[str, Callable[[Tensor], Tensor]]:
        """The encoder runs once for all strategies; only what follows it depends on them."""
        encode = functools.lru_cache(maxsize=1)(lambda images: self.model.encode(images)[-1])

        def predictor(fused: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
            model = self.model
            return lambda images: upsample(
                model.classified(model.refine(fused(images), images), images), images.shape[-2:], model.resize
            )

        found = {"skip": predictor(lambda images: self.model.fuse(encode(images)))}
        if self.teacher is not None and self.config.layer.fusion:
            layer, teacher, source = self.model.fusion, self.teacher, TEACHER_Z[self.config.old_features]
            found["zero"] = predictor(lambda images: layer(encode(images), pad=True))
            found["concat"] = predictor(
                lambda images: layer(encode(images), teacher(images).features[source])
            )
        return found

    def deployed(self) -> Network:
        """The model of `skip`: no old branch, no fusion."""
        model = super().deployed()
        model.fusion = model.fusion and model.fusion.without_old()
        return model

    def attention_maps(self, images: Tensor) -> dict[str, Tensor]:
        """The energy of z_bar (eq. 6), and the structured attention (eq. 3) averaged over channels."""
        z, layer = self.model.encode(images)[-1], self.model.fusion
        maps = {"energy": spatial_attention(self.model.fuse(z)).squeeze(1)}
        if layer is not None and self.config.layer.attention:
            maps["attention"] = layer.structured(layer.fuse(z)).mean(1)
        return maps


METHOD = CAF
