"""Joint training: all classes at once on all images, with all labels. The upper bound."""

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


class Joint(Method):
    Config = Config
    about = About("Joint training", "upper bound", 2020, published="77.4*", keeps="all images")
    start = staticmethod(plain_start)
    offline = True

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        return {"ce": cross_entropy(self.model(batch.images).logits, batch.labels)}


METHOD = Joint
