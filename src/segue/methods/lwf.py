"""LwF: Learning without Forgetting (Li and Hoiem, ECCV 2016), as MiB runs it on pixels.

Cross-entropy on the step's labels, and the old channels' distribution, among themselves, held to the
teacher's. Both call hidden old classes background and new classes wrong, which is what MiB set out to mend.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from segue.core.config import NonNegative
from segue.data.steps import Batch
from segue.losses import cross_entropy, distillation, upsample
from segue.methods.base import About, Method, StepContext


@dataclass(frozen=True)
class Config:
    kd_weight: NonNegative = 100.0
    """weight of the distillation"""


class LwF(Method):
    Config = Config
    about = About("Learning without Forgetting", "Li and Hoiem, ECCV", 2016, keeps="teacher")
    uses_teacher = True

    def begin_step(self, ctx: StepContext) -> None:
        pass

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        size = batch.labels.shape[-2:]
        logits = upsample(self.model(batch.images).logits, size)
        terms = {"ce": cross_entropy(logits, batch.labels)}
        if self.teacher is not None:
            old_logits = self.teacher(batch.images).logits
            terms["kd"] = self.config.kd_weight * distillation(logits, old_logits, size)
        return terms


METHOD = LwF
