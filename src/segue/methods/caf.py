"""CAF: Continual Attentive Fusion for incremental semantic segmentation (Yang et al., IEEE TMM 2022).

Three parts on top of the unbiased cross-entropy: a layer that fuses the features of the new and the frozen
old model (models/caf.py), a distillation of features weighted by their own attention (losses/features.py),
and a distillation of outputs whose background term is re-weighted per image. At test time the layer runs
without the old model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from segue.core.config import NonNegative, Positive
from segue.data.steps import Batch
from segue.losses import (
    attentive_distillation,
    background_balance,
    cross_entropy,
    spatial_attention,
    unbiased_cross_entropy,
    unbiased_distillation,
    upsample,
)
from segue.methods.base import About, Method, Setting, StepContext, peak_to_one
from segue.models.caf import REDUCTION, CafLayer
from segue.models.segmenter import Output, Segmenter


@dataclass(frozen=True)
class Config:
    kd_weight: NonNegative = 10.0
    """lambda_D: weight of the balanced distillation"""
    ad_weight: NonNegative = 1.0
    """lambda_AD: weight of the attentive distillation, relative to the teacher's energy"""
    gamma: Literal["logit", "ratio", "literal", "none"] = "none"
    """reading of the background balance (eq. 11); none: 1"""
    gamma_max: Positive | None = 1.0
    """largest background weight"""
    modality_dropout: Annotated[float, Field(ge=0, le=1)] = 0.5
    """share of iterations in which the layer does without the old features, as it will at test time"""


class CAF(Method):
    Config = Config
    about = About("Continual Attentive Fusion", "Yang et al., IEEE TMM", 2022, keeps="teacher")
    settings = (
        Setting("ade20k", None, {"optim": {"lr_next": 0.01}}),
        # a small network that is trained from nothing needs room to learn
        Setting("scenes", None, {"method": {"params": {"ad_weight": 0.01}}}),
    )
    uses_teacher = True
    balanced_init = True

    def __init__(self, config: Config, model: Segmenter) -> None:
        super().__init__(config, model)
        channels = {"z_fused": model.backbone.channels[-1], "h": model.classifier.in_channels}
        model.fusion = CafLayer(channels["z_fused"])
        for name, width in channels.items():
            # squeeze and excitation stays as drawn, equal in student and teacher: it cannot be bent
            squeezed = max(width // REDUCTION, 4)
            self.register_buffer(
                f"squeeze_{name}", nn.init.kaiming_uniform_(torch.empty(squeezed, width), a=5**0.5)
            )
            self.register_buffer(
                f"excite_{name}", nn.init.kaiming_uniform_(torch.empty(width, squeezed), a=5**0.5)
            )

    def begin_step(self, ctx: StepContext) -> None:
        self.num_old = ctx.step.num_old
        self.generator = ctx.generator

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        if self.teacher is None:
            return {"ce": cross_entropy(self.model(batch.images).logits, batch.labels)}
        old = self.teacher(batch.images)
        skips = torch.rand((), generator=self.generator).item() < self.config.modality_dropout
        out = self.model(batch.images, None if skips else old.features["z"])
        size = batch.labels.shape[-2:]
        logits = upsample(out.logits, size)  # once, for both losses
        distilled = unbiased_distillation(logits, old.logits, self.background_weight(old.logits), size)
        return {
            "ce": unbiased_cross_entropy(logits, batch.labels, self.num_old),
            "kd": self.config.kd_weight * distilled,
            "ad": self.config.ad_weight * self.feature_distance(out, old),
        }

    def background_weight(self, old_logits: Tensor) -> Tensor | None:
        """gamma (eq. 11), bounded: an image full of foreground would weigh its background a thousandfold."""
        if self.config.gamma == "none":
            return None
        return background_balance(old_logits, self.config.gamma).clamp(0, self.config.gamma_max)

    def feature_distance(self, out: Output, old: Output) -> Tensor:
        """L_AD (eq. 8): both maps of the student against those that the teacher's own head consumed."""
        return sum(
            attentive_distillation(
                out.features[name],
                old.features[name],
                getattr(self, f"squeeze_{name}"),
                getattr(self, f"excite_{name}"),
            )
            for name in ("z_fused", "h")
        )

    def attention_maps(self, images: Tensor) -> dict[str, Tensor]:
        z = self.model.encode(images)[-1]
        _, spatial = self.model.fusion.attention(self.model.fusion.fuse(z, None))
        return {
            "energy": peak_to_one(spatial_attention(self.model.fuse(z))),
            "attention": (1 + spatial.squeeze(1)) / 2,  # one half: left as it is
        }


METHOD = CAF
