"""MBS: mitigating background shift (Park et al., ECCV 2024).

The teacher labels what it is sure of on the background and makes the doubtful rest ignored; its features are
held where it knows what it sees; its background's probability is handed to a new class where one is labelled;
classifiers of new classes are kept apart from all others.

Departures: the losses stand on any network, not on the authors' Segmenter, so that its patches are places of
the head's map and its class features are rows of the classifier. The authors choose a step's weights by its
score on the test images; here the last weights count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from segue.core.config import NonNegative
from segue.core.declaration import About, BenchmarkValues, plain_start
from segue.core.scenario import Step
from segue.data.batches import Batch
from segue.losses import cross_entropy, labels_of_map, wide
from segue.losses.guided import (
    adaptive_distance,
    label_guided_distillation,
    orthogonality,
    selective_labels,
)
from segue.losses.pixel import IGNORE
from segue.methods.base import Method
from segue.models.classifier import copy_background
from segue.models.network import Network


@dataclass(frozen=True)
class Config:
    confidence: Annotated[float, Field(ge=0, le=1)] = 0.7
    """least probability of an old class that becomes a label on the background"""
    feature_weight: NonNegative = 1.0
    """weight of the distance to the teacher's features and classifiers"""
    kd_weight: NonNegative = 25.0
    """weight of the label-guided distillation"""
    apart_weight: NonNegative = 1.0
    """weight of the likeness of new classifiers to all others"""


class MBS(Method):
    Config = Config
    about = About(
        "Mitigating background shift", "Park et al., ECCV", 2024, published="79.0+", keeps="teacher"
    )
    start = staticmethod(plain_start)
    benchmark_values = (
        BenchmarkValues(
            "voc",
            None,
            {"optim": {"lr_first": 1e-3, "lr_next": 1e-4, "poly_power": 0.0, "weight_decay": 1e-5},
             "train": {"epochs": 32, "batch_size": 16}},
        ),
        BenchmarkValues(
            "ade20k",
            None,
            {"optim": {"lr_first": 1e-3, "lr_next": 5e-4, "poly_power": 0.0, "weight_decay": 1e-5},
             "train": {"epochs": 64, "batch_size": 8},
             "method": {"params": {"kd_weight": 50.0}}},
        ),
    )  # fmt: skip
    uses_teacher = True
    needs = frozenset({"h", "rows", "background"})

    def grow(self, step: Step) -> None:
        super().grow(step)
        if not step.first and self.new_start == "own":
            self.start_as_background()

    def start_as_background(self) -> None:
        """New classes begin as what they were taken for until now."""
        copy_background(self.model.classifier.parts[0], self.model.classifier.parts[-1])

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        out = self.model(batch.images)
        if self.teacher is None:
            return {"ce": cross_entropy(out.logits, batch.labels)}
        config, old, num_old = self.config, self.teacher(batch.images), self.step.num_old
        labels = selective_labels(batch.labels, old.logits, config.confidence)
        # the authors' mean is over the pixels that count
        counted = labels.numel() / (labels != IGNORE).sum().clamp_min(1)
        h, old_h = out.features["h"], old.features["h"]
        distance = adaptive_distance(h, old_h, labels_of_map(labels, h), old.logits)
        rows, old_rows = rows_of(self.model), rows_of(self.teacher.model)
        moved = (rows[:num_old] - old_rows).square().mean()
        return {
            "ce": counted * cross_entropy(out.logits, labels),
            "features": config.feature_weight * (distance + moved),
            "kd": config.kd_weight * label_guided_distillation(out.logits, old.logits, batch.labels),
            "apart": config.apart_weight * orthogonality(rows, num_old),
        }


def rows_of(model: Network) -> Tensor:
    """The classifiers' weights, one row per channel."""
    return wide(torch.cat([part.weight.flatten(1) for part in model.classifier.parts]))


METHOD = MBS
