"""DKD: decomposed knowledge distillation (Baek et al., NeurIPS 2022).

Every class is a binary classifier, and there is none for background. A score is the sum of what speaks for
its class and what speaks against it; both are distilled, not their sum alone. An auxiliary head learns to say
"no" to all that is seen; new classifiers start as copies of it.

Departures: features below zero, which a leaky activation has, are split by the sign of their product with the
weight (losses/sigmoid.py). Weight decay is the recipe's for all parts, where the authors spare the old ones
in incremental steps, and the rate does not warm up. Labels of 255 are a "no" for all classes, as in the
authors' code.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from segue.core.config import NonNegative, Positive
from segue.core.declaration import About, BenchmarkValues, Start
from segue.core.scenario import Step
from segue.data.batches import Batch
from segue.losses.sigmoid import class_scores, distilled_class_scores, distilled_reasons, reasons
from segue.methods.base import Method
from segue.models.classifier import SigmoidClassifier
from segue.models.network import Network, Output


@dataclass(frozen=True)
class Config:
    kd_weight: NonNegative = 5.0
    """weight of the distillation of old scores"""
    reasons_weight: NonNegative = 5.0
    """weight of the distillation of what speaks for old classes, and of what speaks against them"""
    auxiliary_weight: NonNegative = 1.0
    """weight of the auxiliary head's loss"""
    positive_first: Positive = 1.0
    """weight of a class's own pixels in step 0"""
    positive_next: Positive = 1.0
    """weight of a class's own pixels in incremental steps"""


class DKD(Method):
    Config = Config
    about = About("Decomposed distillation", "Baek et al., NeurIPS", 2022, published="69.7", keeps="teacher")
    benchmark_values = (
        BenchmarkValues(
            "voc",
            None,
            {"optim": {"lr_first": 1e-3, "lr_next": 1e-4, "head_factor": 10.0, "layer_factor": 10.0},
             "train": {"epochs": 60, "batch_size": 32},
             "method": {"params": {"positive_first": 2.0}}},
        ),
        BenchmarkValues(
            "ade20k",
            None,
            {"optim": {"lr_first": 2.5e-3, "lr_next": 2.5e-4, "head_factor": 10.0, "layer_factor": 10.0},
             "train": {"epochs": 100, "batch_size": 24},
             "method": {"params": {"positive_first": 35.0, "positive_next": 35.0}}},
        ),
    )  # fmt: skip
    uses_teacher = True
    needs = frozenset({"h", "classifier"})

    @classmethod
    def start(cls, config: Config) -> Start:
        decides = {"positive_first": config.positive_first, "auxiliary_weight": config.auxiliary_weight}
        return Start(decides, gathered=decides)

    def __init__(self, config: Config, model: Network) -> None:
        super().__init__(config, model)
        model.classifier = SigmoidClassifier(model.classifier.in_channels)
        self.auxiliary = nn.Conv2d(model.classifier.in_channels, 1, 1)

    def grow(self, step: Step) -> None:
        super().grow(step)
        if not step.first:
            new = self.model.classifier.parts[-1]
            with torch.no_grad():
                new.weight.copy_(self.auxiliary.weight.expand_as(new.weight))
                new.bias.copy_(self.auxiliary.bias.expand_as(new.bias))

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        config, out = self.config, self.model(batch.images)
        scores, nothing = out.logits[:, 1:], torch.zeros_like(batch.labels)
        auxiliary = class_scores(self.auxiliary(out.features["h"].detach()), nothing)
        if self.teacher is None:
            labelled = class_scores(scores, batch.labels, 0, config.positive_first)
            return {"bce": labelled, "auxiliary": config.auxiliary_weight * auxiliary}
        old = self.teacher(batch.images)
        labelled, distilled = distilled_class_scores(
            scores, old.logits[:, 1:], batch.labels, config.positive_next
        )
        ours, theirs = old_reasons(self.model, out), old_reasons(self.teacher.model, old, whole=True)
        speaks_for, speaks_against = distilled_reasons(ours, theirs)
        return {
            "bce": labelled,
            "kd": config.kd_weight * distilled,
            "for": config.reasons_weight * speaks_for,
            "against": config.reasons_weight * speaks_against,
            "auxiliary": config.auxiliary_weight * auxiliary,
        }


def old_reasons(model: Network, out: Output, whole: bool = False) -> tuple[Tensor, Tensor]:
    """What speaks for and against the old classes; `whole`: all classes of the model are old."""
    parts = list(model.classifier.parts)[: None if whole else -1]
    weight = torch.cat([part.weight for part in parts])
    return reasons(out.features["h"], weight, parts[0].padding)


METHOD = DKD
