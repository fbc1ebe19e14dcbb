"""RCIL: representation compensation (Zhang et al., CVPR 2022).

Every 3 x 3 convolution of the backbone with its norm gets a twin beside it. When a step begins the two are
merged into the left one, which is frozen, and the right one goes on learning: what was known is held by
structure. The losses are MiB's, and a distance of maps pooled over places and over channels. At test time the
twins are merged, so the network costs what it did.

Departures: the head's convolutions share one norm and have no twins. Stages are compared as the backbone
hands them out, after their activation. The merge uses the norm's own scale; the authors' code takes its
absolute value, which belongs to their kind of norm.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from segue.core.config import NonNegative
from segue.core.declaration import About, BenchmarkValues, Start
from segue.core.errors import UserError
from segue.core.scenario import Step
from segue.data.batches import Batch
from segue.losses import cross_entropy, incremental_losses
from segue.losses.pooled import pooled_cubes
from segue.methods.base import Method
from segue.models.network import Network, Output
from segue.models.twins import Twins, add_twins, merge_twins

STAGES = 4
"""last stages of the backbone that are compared; a stem is none of them"""


@dataclass(frozen=True)
class Config:
    branches: Literal["twins", "none"] = "twins"
    """structure: twins of the 3 x 3 convolutions, or the losses alone on the bare network"""
    kd_weight: NonNegative = 100.0
    """weight of the unbiased distillation"""
    cube_factor: NonNegative = 0.01
    """weight of the distance of pooled maps"""
    cube_last_factor: NonNegative = 5e-4
    """weight of that distance for the logits and, pooled over channels, the head's map"""


class RCIL(Method):
    Config = Config
    about = About(
        "Representation compensation", "Zhang et al., CVPR", 2022, published="59.4", keeps="teacher"
    )
    benchmark_values = (
        BenchmarkValues("voc", None, {"optim": {"lr_first": 0.02}}),
        BenchmarkValues(
            "ade20k",
            None,
            {"optim": {"lr_first": 0.02}, "train": {"epochs": 60},
             "method": {"params": {"cube_factor": 5e-6, "cube_last_factor": 5e-7}}},
        ),
        BenchmarkValues("scenes", None, {"method": {"params": {"kd_weight": 10.0, "cube_factor": 1e-3}}}),
    )  # fmt: skip
    uses_teacher = True
    needs = frozenset({"h", "stages", "backbone"})
    balanced_init = True
    reads_stages = True
    freezes_late = False

    @classmethod
    def start(cls, config: Config) -> Start:
        return Start({"branches": config.branches} if config.branches == "twins" else {})

    def __init__(self, config: Config, model: Network) -> None:
        super().__init__(config, model)
        if config.branches == "twins" and not add_twins(model, model.backbone, model._maps):
            raise UserError(
                f"The backbone {model.config.backbone} has no trained 3 x 3 convolution with a batch norm of"
                " its own, so RCIL's twins have no place: use its losses alone, method.params.branches=none."
            )

    def grow(self, step: Step) -> None:
        super().grow(step)
        for twins in self.twins() if not step.first else ():
            twins.merge_into_left()
            self.model.freeze(twins.left)
            self.model.freeze(twins.left_norm)

    def twins(self) -> list[Twins]:
        return [module for module in self.model.modules() if isinstance(module, Twins)]

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        out = self.model(batch.images)
        if self.teacher is None:
            return {"ce": cross_entropy(out.logits, batch.labels)}
        config, step = self.config, self.step
        old = self.teacher(batch.images, stages=STAGES)
        labelled, distilled = incremental_losses(out.logits, old.logits, batch.labels, step.num_old)
        distance = pooled_cubes(
            maps(old), maps(out), step.num_old, len(step.new), config.cube_factor, config.cube_last_factor
        )
        return {"ce": labelled, "kd": config.kd_weight * distilled, "cubes": distance}

    def deployed(self) -> Network:
        """The bare network, with every pair of twins merged."""
        model = copy.deepcopy(self.model).eval()
        merge_twins(model, model._maps)
        return model


def maps(out: Output) -> list[Tensor]:
    """What is compared: the last four stages, the head's map, and the logits at their stride."""
    return [*out.stages[-STAGES:], out.features["h"], out.logits]


METHOD = RCIL
