"""DFT: everything frozen but the new classifier. The cheap baseline that every method has to beat.

After step 0 backbone, head and old classifiers stay as they are, so nothing old can be forgotten; only the
new classes' 1 x 1 convolution is trained. There is no teacher, and no gradient leaves the last layer. Old
classes can still lose pixels to new ones; an optional memory of old images shows the new classifier what
they look like.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from segue.core.config import ReplayConfig
from segue.core.declaration import About, BenchmarkValues, plain_start
from segue.core.scenario import Step
from segue.data.batches import Batch
from segue.losses import cross_entropy
from segue.methods.base import Method


@dataclass(frozen=True)
class Config:
    memory: ReplayConfig = field(default_factory=ReplayConfig)


class DFT(Method):
    Config = Config
    about = About("Frozen but for new classifiers", "baseline", 2023)
    start = staticmethod(plain_start)
    benchmark_values = (
        BenchmarkValues("scenes", None, {"optim": {"lr_next": 0.2}}),
    )  # a single layer stands more

    def grow(self, step: Step) -> None:
        if not step.first:
            self.model.freeze_body()
            for part in self.model.classifier.parts:
                self.model.freeze(part)
        super().grow(step)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        # the unbiased cross-entropy would give the new channels, the only ones to move, the same gradient
        return {"ce": cross_entropy(self.model(batch.images).logits, batch.labels)}


METHOD = DFT
