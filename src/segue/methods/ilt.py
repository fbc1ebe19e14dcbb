"""ILT: Incremental Learning Techniques for semantic segmentation (Michieli and Zanuttigh, ICCVW 2019).

Distillation of outputs and of features, as MiB runs it: the features are the encoder's z alone, nothing is
frozen and nothing masked. The authors' own code is another network with other settings.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from segue.core.config import NonNegative
from segue.core.declaration import About, BenchmarkValues, plain_start
from segue.data.batches import Batch
from segue.losses import cross_entropy, distilled_cross_entropy, wide
from segue.methods.base import Method


@dataclass(frozen=True)
class Config:
    kd_weight: NonNegative = 100.0
    """weight of the distillation of outputs"""
    feature_weight: NonNegative = 100.0
    """weight of the mean squared distance between encoder features"""


class ILT(Method):
    Config = Config
    about = About(
        "Incremental Learning Techniques",
        "Michieli, Zanuttigh, ICCVW",
        2019,
        published="5.7*",
        keeps="teacher",
    )
    start = staticmethod(plain_start)
    benchmark_values = (BenchmarkValues("scenes", None, {"method": {"params": {"feature_weight": 1.0}}}),)
    uses_teacher = True
    needs = frozenset({"z"})

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        out = self.model(batch.images)
        if self.teacher is None:
            return {"ce": cross_entropy(out.logits, batch.labels)}
        old = self.teacher(batch.images)
        labelled, distilled = distilled_cross_entropy(out.logits, old.logits, batch.labels)
        distance = F.mse_loss(wide(out.features["z"]), wide(old.features["z"]))
        return {
            "ce": labelled,
            "kd": self.config.kd_weight * distilled,
            "features": self.config.feature_weight * distance,
        }


METHOD = ILT
