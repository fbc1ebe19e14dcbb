"""Inc.Seg: an EM framework for incremental segmentation (Yan et al., ACM MM 2021). **Re-derived.**

No code was published; this follows what the abstract says and claims no parity. E-step: background is
filled with the teacher's answer where it is confident, and ignored where it is not. M-step: cross-entropy
over all classes, balanced by how seldom they are in the batch, with an optional memory of old images. The
paper's single pass over the data, its sampling of informative images and its cosine classifier are left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from segue.core.config import ReplayConfig
from segue.core.declaration import About, Start
from segue.data.batches import Batch
from segue.losses import cross_entropy
from segue.losses.pixel import IGNORE, class_balance
from segue.losses.pseudo import most_likely
from segue.methods.base import Method


@dataclass(frozen=True)
class Config:
    confidence: Annotated[float, Field(ge=0, le=1)] = 0.7
    """least probability of an answer of the teacher that becomes a label"""
    balance: Annotated[float, Field(ge=0, le=1)] = 0.5
    """how far classes are balanced: 0 not at all, 1 fully"""
    memory: ReplayConfig = field(default_factory=ReplayConfig)


class IncSeg(Method):
    Config = Config
    about = About("EM framework (re-derived)", "Yan et al., ACM MM", 2021, keeps="teacher")
    uses_teacher = True
    balanced_init = True

    @classmethod
    def start(cls, config: Config) -> Start:
        return Start({"balance": config.balance})

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        logits, labels = self.model(batch.images).logits, batch.labels
        if self.teacher is not None:
            labels = self.relabelled(batch)
        weights = class_balance(labels, self.step.num_channels, self.config.balance)
        return {"ce": cross_entropy(logits, labels, weights)}

    def relabelled(self, batch: Batch) -> Tensor:
        """The E-step: what the step leaves unlabelled gets the teacher's answer, or is ignored."""
        probability, answer = most_likely(self.teacher(batch.images).logits, batch.labels.shape[-2:])
        answer = torch.where(probability >= self.config.confidence, answer, IGNORE)
        return torch.where(batch.labels == 0, answer, batch.labels)


METHOD = IncSeg
