"""PLOP: Learning without Forgetting for continual semantic segmentation (Douillard et al., CVPR 2021).

Background is filled with the teacher's answers where it is sure enough, by a threshold per class from one
pass before the step; images of which little is kept count less. Maps of all stages, of the head and the
logits are held to the teacher's by local POD. The authors compare stages before their last activation; here
they are what the backbone hands out, after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from segue.core.config import NonNegative
from segue.core.declaration import About, BenchmarkValues, plain_start
from segue.core.scenario import Step
from segue.data.batches import Batch
from segue.losses import cross_entropy, local_pod
from segue.losses.processes import sum_over_processes
from segue.losses.pseudo import BINS, count_uncertainty, pseudo_labels, thresholds
from segue.methods.base import Method, StepContext
from segue.models.network import Network, Output

STAGES = 4
"""last stages of the backbone that are compared; a stem is none of them"""


@dataclass(frozen=True)
class Config:
    pod_factor: NonNegative = 0.01
    """weight of local POD on stages and head"""
    pod_logits_factor: NonNegative = 5e-4
    """weight of local POD on the logits"""
    median: Literal["fixed", "official"] = "fixed"
    """the median uncertainty as it is meant, or as the released code computes it"""


class PLOP(Method):
    Config = Config
    about = About("PLOP", "Douillard et al., CVPR", 2021, published="54.6", keeps="teacher")
    start = staticmethod(plain_start)
    benchmark_values = (
        BenchmarkValues(
            "ade20k", None, {"method": {"params": {"pod_factor": 1e-3, "pod_logits_factor": 1e-5}}}
        ),
        BenchmarkValues("scenes", None, {"method": {"params": {"pod_factor": 1e-3}}}),
    )
    uses_teacher = True
    balanced_init = True
    needs = frozenset({"h", "stages", "background"})
    reads_stages = True

    def __init__(self, config: Config, model: Network) -> None:
        super().__init__(config, model)
        self.register_buffer("thresholds", torch.zeros(0))

    def grow(self, step: Step) -> None:
        super().grow(step)
        self.thresholds = self.thresholds.new_zeros(0 if step.first else step.num_old)

    def begin_step(self, ctx: StepContext) -> None:
        if self.teacher is None:
            return
        channels, median = ctx.step.num_channels, self.config.median
        counts = torch.zeros(ctx.step.num_old, BINS, dtype=torch.long, device=ctx.device)
        for batch in ctx.loader:
            old_logits = self.teacher(batch.images).logits
            counts = counts + count_uncertainty(old_logits, batch.labels, channels, median)
        self.thresholds.copy_(thresholds(sum_over_processes(counts), channels, median))

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        out = self.model(batch.images)
        if self.teacher is None:
            return {"ce": cross_entropy(out.logits, batch.labels)}
        config, step = self.config, self.step
        old = self.teacher(batch.images, stages=STAGES)
        labels, kept = pseudo_labels(batch.labels, old.logits, self.thresholds, step.num_channels)
        distance = local_pod(
            self.maps(old), self.maps(out), step.num_old, len(step.new), config.pod_factor,
            config.pod_logits_factor,
        )  # fmt: skip
        return {"ce": cross_entropy(out.logits, labels, image_weight_B=kept), "pod": distance}

    def maps(self, out: Output) -> list[Tensor]:
        """What local POD compares: the last four stages, the head's map, and the logits at their stride."""
        return [*out.stages[-STAGES:], out.features["h"], out.logits]


METHOD = PLOP
