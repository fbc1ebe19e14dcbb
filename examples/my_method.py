"""A method in one file: MiB's cross-entropy, and distillation of the old model's outputs with a temperature.

segue train examples/my_method.py --on scenes --split 5-2 method.params.temperature=4

`K` is the number of channels, `O` that of the old model; both count background.
"""

from dataclasses import dataclass

from torch import Tensor

from segue.core.config import NonNegative, Positive
from segue.data.batches import Batch
from segue.losses import cross_entropy, unbiased_cross_entropy
from segue.methods.base import About, Method


@dataclass(frozen=True)
class Config:
    """Settings: `method.params.weight=5` on the command line."""

    weight: NonNegative = 10.0
    """weight of the distillation"""
    temperature: Positive = 2.0
    """temperature of both softmaxes"""


class WarmDistillation(Method):
    Config = Config
    about = About("Warm distillation", "unpublished", 2026, keeps="teacher")
    uses_teacher = True  # from step 1 on self.teacher is the frozen model of the step before
    balanced_init = True  # new classifiers start as shares of the background

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Named, weighted terms. The engine adds them and does the rest."""
        logits_BKhw = self.model(batch.images).logits
        if self.teacher is None:
            return {"ce": cross_entropy(logits_BKhw, batch.labels)}
        old_BOhw = self.teacher(batch.images).logits
        num_old, t = old_BOhw.shape[1], self.config.temperature
        log_BOhw = (logits_BKhw[:, :num_old] / t).log_softmax(1)
        distance = -((old_BOhw / t).softmax(1) * log_BOhw).sum(1).mean()
        return {
            "ce": unbiased_cross_entropy(logits_BKhw, batch.labels, num_old),
            "kd": self.config.weight * distance,
        }


METHOD = WarmDistillation
