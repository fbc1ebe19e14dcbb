"""LwF: Learning without Forgetting (Li and Hoiem, ECCV 2016), as MiB runs it on pixels.

Cross-entropy on the step's labels, and the old channels' distribution, among themselves, held to the
teacher's. Both call hidden old classes background and new classes wrong, which is what MiB set out to mend.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from segue.core.config import NonNegative
from segue.core.declaration import About, plain_start
from segue.data.batches import Batch
from segue.losses import cross_entropy, distilled_cross_entropy
from segue.methods.base import Method


@dataclass(frozen=True)
class Config:
    kd_weight: NonNegative = 100.0
    """weight of the distillation"""


class LwF(Method):
    Config = Config
    about = About(
        "Learning without Forgetting", "Li and Hoiem, ECCV", 2016, published="1.8*", keeps="teacher"
    )
    start = staticmethod(plain_start)
    uses_teacher = True

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        logits = self.model(batch.images).logits
        if self.teacher is None:
            return {"ce": cross_entropy(logits, batch.labels)}
        old_logits = self.teacher(batch.images).logits
        labelled, distilled = distilled_cross_entropy(logits, old_logits, batch.labels)
        return {"ce": labelled, "kd": self.config.kd_weight * distilled}


METHOD = LwF
