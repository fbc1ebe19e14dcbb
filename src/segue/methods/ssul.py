"""SSUL: Semantic Segmentation with Unknown Label (Cha et al., NeurIPS 2021).

After step 0 backbone, head and old classifiers are frozen. Every channel is a binary classifier, and one
more stands for the unknown: pixels of the background that stand out (by a saliency map) but have no name
yet. New classes start as copies of it, and at test time it counts as background. What the frozen classifiers
are sure of on the background becomes a label. An optional memory of old images makes it SSUL-M.

Simplifications: the frozen model is its own teacher (its old classes cannot change), so no second model is
run and the unknown as it was has no say in what is sure; the background's head is frozen with the rest, where
the authors train it at a rate of 1/10,000; the rate does not warm up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from segue.core.config import ReplayConfig
from segue.core.declaration import About, BenchmarkValues, Start
from segue.core.scenario import Step
from segue.data.batches import Batch
from segue.data.saliency import salient_pixels
from segue.losses import binary_cross_entropy
from segue.losses.pseudo import most_likely
from segue.methods.base import Method
from segue.models.classifier import UnknownClassifier
from segue.models.network import Network


@dataclass(frozen=True)
class Config:
    confidence: Annotated[float, Field(ge=0, le=1)] = 0.7
    """least probability of an old class that becomes a label on the background"""
    saliency: str | None = None
    """folder of saliency maps, KEY.png; without one pixels stand out by their colour (data/saliency.py)"""
    memory: ReplayConfig = field(default_factory=ReplayConfig)


class SSUL(Method):
    Config = Config
    about = About("SSUL", "Cha et al., NeurIPS", 2021, published="67.6")
    benchmark_values = (
        BenchmarkValues(
            "voc",
            None,
            {"optim": {"lr_first": 1e-3, "lr_next": 1e-3, "head_factor": 10.0},
             "train": {"epochs": 50, "batch_size": 32, "crop": 513}},
        ),
        BenchmarkValues(
            "ade20k",
            None,
            {"optim": {"lr_first": 5e-3, "lr_next": 5e-3, "head_factor": 10.0},
             "train": {"epochs": 100, "batch_size": 24, "crop": 513}},
        ),
        BenchmarkValues("scenes", None, {"optim": {"lr_next": 0.2}}),  # single heads stand more
    )  # fmt: skip
    balanced_init = True
    needs = frozenset({"h", "classifier"})

    @classmethod
    def start(cls, config: Config) -> Start:
        return Start({"saliency": config.saliency})

    def __init__(self, config: Config, model: Network) -> None:
        super().__init__(config, model)
        model.classifier = UnknownClassifier(model.h_channels)

    def grow(self, step: Step) -> None:
        if not step.first:
            model = self.model
            model.freeze_body()
            for part in (model.classifier.background, *model.classifier.parts):
                model.freeze(part)
        super().grow(step)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        scores = self.model.classifier.scores(self.model.refined(batch.images))
        return {"bce": binary_cross_entropy(scores, self.relabelled(batch, scores))}

    def relabelled(self, batch: Batch, scores: Tensor) -> Tensor:
        """Labels in which background is an old class that is known for sure, unknown, or background."""
        labels, unlabelled = batch.labels, batch.labels == 0
        unknown = self.step.num_channels  # the channel after all others
        salient = salient_pixels(batch.images) if batch.salient is None else batch.salient
        labels = torch.where(unlabelled & salient, unknown, labels)
        if not self.step.first:
            old, size = scores[:, : self.step.num_old], batch.labels.shape[-2:]
            probability, answer = most_likely(old, size, binary=True)
            sure = (answer > 0) & (probability >= self.config.confidence)
            labels = torch.where(unlabelled & sure, answer, labels)
        return labels


METHOD = SSUL
