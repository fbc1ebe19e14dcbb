"""SDR: Sparse and Disentangled latent Representations (Michieli and Zanuttigh, CVPR 2021).

On top of MiB's losses, four constraints on the encoder's features: the mean feature of an old class stays at
its prototype (matching); features gather around the prototype of their class (attraction); means of different
classes stay apart (repulsion); few channels are active at a place (sparsity). These are the formulas: the
released code reshapes features in a way that mixes channels and places, which is not reproduced. The common
network and recipe are used, not the authors' own.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from segue.core.config import NonNegative
from segue.core.declaration import About, BenchmarkValues, ClassMemory, Start
from segue.core.scenario import Step
from segue.data.batches import Batch
from segue.losses import cross_entropy, incremental_losses, labels_of_map, wide
from segue.losses.processes import sum_over_processes
from segue.losses.prototypes import attraction, class_sums, repulsion, sparsity
from segue.methods.base import Method
from segue.models.network import Network


@dataclass(frozen=True)
class Config:
    kd_weight: NonNegative = 100.0
    """weight of the unbiased distillation"""
    matching: NonNegative = 1e-2
    """weight of the distance between the mean features of old classes and their prototypes"""
    attraction: NonNegative = 1e-3
    """weight of the distance of features to the prototype of their class"""
    repulsion: NonNegative = 1e-3
    """weight of the nearness of classes to each other"""
    sparsity: NonNegative = 1e-3
    """weight of the number of active channels"""


class SDR(Method):
    Config = Config
    about = About(
        "Sparse, disentangled features",
        "Michieli, Zanuttigh, CVPR",
        2021,
        published="39.5",
        keeps="teacher, prototypes",
        of_class=ClassMemory(z=1, numbers=2),
    )
    benchmark_values = (BenchmarkValues("scenes", None, {"method": {"params": {"kd_weight": 10.0}}}),)
    uses_teacher = True
    needs = frozenset({"z", "background"})

    @classmethod
    def start(cls, config: Config) -> Start:
        structure = {name: getattr(config, name) for name in ("attraction", "repulsion", "sparsity")}
        return Start(structure, gathered=structure)

    def __init__(self, config: Config, model: Network) -> None:
        super().__init__(config, model)
        self.register_buffer("prototypes", torch.zeros(0, model.z_channels))
        self.register_buffer("counts", torch.zeros(0, dtype=torch.long))

    def grow(self, step: Step) -> None:
        super().grow(step)
        added = step.num_channels - len(self.counts)
        self.prototypes = F.pad(self.prototypes, (0, 0, 0, added))
        self.counts = F.pad(self.counts, (0, added))

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        out = self.model(batch.images)
        z, logits = wide(out.features["z"]), out.logits
        labels = labels_of_map(batch.labels, z)
        self.remember(z.detach(), labels)
        if self.teacher is None:
            return {"ce": cross_entropy(logits, batch.labels), **self.structure(z, labels)}
        old_logits = self.teacher(batch.images).logits
        seen = torch.where(labels == 0, labels_of_map(old_logits.argmax(1), z), labels)
        labelled, distilled = incremental_losses(logits, old_logits, batch.labels, self.step.num_old)
        return {
            "ce": labelled,
            "kd": self.config.kd_weight * distilled,
            "matching": self.config.matching * self.mismatch(z, seen),
            **self.structure(z, seen),
        }

    def structure(self, z: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """The constraints of every step, on the classes that are labelled or that the teacher sees."""
        config = self.config
        return {
            "attraction": config.attraction * attraction(z, labels, self.prototypes, self.counts > 0),
            "repulsion": config.repulsion * repulsion(z, labels, len(self.counts)),
            "sparsity": config.sparsity * sparsity(z, labels, len(self.counts)),
        }

    def mismatch(self, z: Tensor, labels: Tensor) -> Tensor:
        """Mean squared distance between the means of the old classes in the batch and their prototypes."""
        sums, counts = class_sums(z, labels, len(self.counts))
        known = (counts > 0) & (self.counts > 0)
        known[0], known[self.step.num_old :] = False, False
        squares = (sums / counts.clamp_min(1)[:, None] - self.prototypes).square().mean(1)
        return (squares * known).sum() / known.sum().clamp_min(1)

    @torch.no_grad()
    def remember(self, z: Tensor, labels: Tensor) -> None:
        """Running means over all pixels of the classes that the step labels; background has no prototype."""
        sums, counts = class_sums(z, labels, len(self.counts))
        sums, counts = sum_over_processes(sums), sum_over_processes(counts)
        counts[0] = 0
        total = self.counts + counts.long()
        moved = (sums - counts[:, None] * self.prototypes) / total.clamp_min(1)[:, None]
        self.prototypes.add_(torch.where(counts[:, None] > 0, moved, 0.0))
        self.counts.copy_(total)


METHOD = SDR
