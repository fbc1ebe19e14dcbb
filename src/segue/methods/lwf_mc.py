"""LwF-MC: the multi-class form of LwF from iCaRL (Rebuffi et al., CVPR 2017), as MiB runs it on pixels.

Every channel is a classifier of its own: binary cross-entropy, from step 0 on, and the old channels' answers
held to the teacher's. Without its exemplars it is iCaRL's baseline.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from segue.core.config import NonNegative
from segue.core.declaration import About, Start
from segue.data.batches import Batch
from segue.losses import binary_cross_entropy, distilled_binary_cross_entropy
from segue.methods.base import Method


@dataclass(frozen=True)
class Config:
    kd_weight: NonNegative = 10.0
    """weight of the distillation, per old channel"""


class LwFMC(Method):
    Config = Config
    about = About("LwF multi-class", "Rebuffi et al., CVPR", 2017, published="6.9*", keeps="teacher")
    uses_teacher = True
    needs = frozenset({"background"})

    @classmethod
    def start(cls, config: Config) -> Start:
        return Start({"loss": "binary cross-entropy"})

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        logits = self.model(batch.images).logits
        if self.teacher is None:
            return {"bce": binary_cross_entropy(logits, batch.labels)}
        old_logits = self.teacher(batch.images).logits
        labelled, distilled = distilled_binary_cross_entropy(logits, old_logits, batch.labels)
        return {"bce": labelled, "kd": self.config.kd_weight * old_logits.shape[1] * distilled}


METHOD = LwFMC
