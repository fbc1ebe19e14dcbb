"""MiB: Modeling the Background for incremental semantic segmentation (Cermelli et al., CVPR 2020).

Background changes its meaning from step to step: in a new step's labels it hides the old classes, in the
teacher's output it hides the new ones. Both losses account for that, and new classifiers start from the
background's. An optional memory of old images makes it MiB-AugM (arXiv 2405.09858): their background may be a
new class, and their cross-entropy accounts for that.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from segue.core.config import NonNegative, ReplayConfig, added
from segue.core.declaration import About, BenchmarkValues, plain_start
from segue.data.batches import Batch
from segue.losses import cross_entropy, incremental_losses
from segue.methods.base import Method


@dataclass(frozen=True)
class Config:
    kd_weight: NonNegative = 10.0
    """weight of the unbiased distillation"""
    memory: ReplayConfig = added(ReplayConfig())  # noqa: RUF009 - it is frozen


class MiB(Method):
    Config = Config
    about = About(
        "Modeling the Background", "Cermelli et al., CVPR", 2020, published="29.7*", keeps="teacher"
    )
    start = staticmethod(plain_start)
    benchmark_values = (
        BenchmarkValues("voc", "15-1", {"method": {"params": {"kd_weight": 100.0}}}),
    )  # said by its authors, not in the paper
    uses_teacher = True
    balanced_init = True

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        logits = self.model(batch.images).logits
        if self.teacher is None:
            return {"ce": cross_entropy(logits, batch.labels)}
        old_logits = self.teacher(batch.images).logits
        labelled, distilled = incremental_losses(
            logits, old_logits, batch.labels, self.step.num_old, earlier_B=batch.earlier
        )
        return {"ce": labelled, "kd": self.config.kd_weight * distilled}


METHOD = MiB
