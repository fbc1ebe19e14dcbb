"""Fine-tuning: plain cross-entropy on whatever the step shows. It forgets; that is its role."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from segue.core.declaration import About, plain_start
from segue.data.batches import Batch
from segue.losses import cross_entropy
from segue.methods.base import Method


@dataclass(frozen=True)
class Config:
    """Nothing to set."""


class FineTune(Method):
    Config = Config
    about = About("Fine-tuning", "lower bound", 2020, published="0.6*")
    start = staticmethod(plain_start)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        return {"ce": cross_entropy(self.model(batch.images).logits, batch.labels)}


METHOD = FineTune
