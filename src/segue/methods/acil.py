"""ACIL: a classifier in closed form on frozen features (SegACIL / CFSSeg, arXiv 2412.10834).

Step 0 trains the network as usual. Then its classifier is thrown away, everything is frozen, and a ridge
regression on randomly widened features takes its place. A later step adds the places of its images to two
sums and solves again: one pass, no gradient, no learning rate. What is known of old classes is in the sums,
so the result does not depend on how classes are grouped into steps.

Departures: the sums are kept and solved once per step, where the released code inverts twice per batch. Step
0 is trained by cross-entropy, as that of other methods. On background, classes that the fit is sure of are
filled in at every later step; the released code does so from the second on. Probabilities come from a factor
on the regression values that fits the step's own places best.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from segue.core.config import Positive
from segue.core.declaration import About, ClassMemory, Start
from segue.core.scenario import Step
from segue.data.batches import Batch
from segue.losses import cross_entropy, labels_of_map, wide
from segue.losses.processes import sum_over_processes
from segue.losses.ridge import SCALES, ridge_sums, scale_losses, solve_ridge
from segue.methods.base import Method, StepContext
from segue.models.network import Network
from segue.models.ridge import RidgeClassifier

SAMPLED = 64
"""places of each batch by which the factor of probabilities is chosen"""


@dataclass(frozen=True)
class Config:
    width: Annotated[int, Field(ge=1, le=16384)] = 2048
    """number of random features; their sums take width x width x 8 bytes"""
    ridge: Positive = 1.0
    """weight of the squared norm of the regression's weights"""
    confidence: Annotated[float, Field(ge=0, le=1)] | None = 0.7
    """least regression value of an old class that becomes a label on the background; null: none does"""


class ACIL(Method):
    Config = Config
    about = About(
        "Closed-form classifier",
        "arXiv 2412.10834",
        2024,
        published="70.0+",
        keeps="sums",
        of_class=ClassMemory(numbers=2 * 2048),
    )
    needs = frozenset({"h", "classifier"})

    def __init__(self, config: Config, model: Network) -> None:
        super().__init__(config, model)
        model.classifier = RidgeClassifier(model.classifier.in_channels, config.width)
        doubles = {"dtype": torch.float64}
        self.register_buffer("products", torch.zeros(config.width, config.width, **doubles))
        self.register_buffer("targets", torch.zeros(config.width, 0, **doubles))

    @classmethod
    def start(cls, config: Config) -> Start:
        return Start(replaced={"width": config.width, "ridge": config.ridge})

    @classmethod
    def trains(cls, step: Step) -> bool:
        return step.first

    def grow(self, step: Step) -> None:
        super().grow(step)
        self.targets = F.pad(self.targets, (0, step.num_channels - self.targets.shape[1]))

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        return {"ce": cross_entropy(self.model(batch.images).logits, batch.labels)}

    @torch.no_grad()
    def end_step(self, ctx: StepContext) -> None:
        self.model.eval()
        classifier, channels = self.model.classifier, ctx.step.num_channels
        products, targets = torch.zeros_like(self.products), torch.zeros_like(self.targets)
        sample: list[tuple[Tensor, Tensor]] = []
        for batch in ctx.loader:
            widened = wide(classifier.widened(self.model.refined(batch.images)))
            labels = self.filled(labels_of_map(batch.labels, widened), widened, ctx.step)
            rows, labels = widened.movedim(1, -1).flatten(0, 2), labels.flatten()
            more_products, more_targets = ridge_sums(rows, labels, channels)
            products += more_products
            targets += more_targets
            chosen = slice(None, None, max(1, len(rows) // SAMPLED))
            sample.append((rows[chosen].clone(), labels[chosen].clone()))
        self.products += sum_over_processes(products)
        self.targets += sum_over_processes(targets)
        weights = solve_ridge(self.products, self.targets, self.config.ridge)
        classifier.fit(weights)
        losses = [scale_losses(rows.double() @ weights, labels) for rows, labels in sample]
        total = sum_over_processes(sum(losses, torch.zeros(len(SCALES), device=ctx.device).double()))
        classifier.factor.fill_(SCALES[int(total.argmin())])
        self.model.train()

    def filled(self, labels_Bhw: Tensor, widened_BDhw: Tensor, step: Step) -> Tensor:
        """Labels with the old classes that the last fit is sure of on the background."""
        if step.first or self.config.confidence is None:
            return labels_Bhw
        best, answer = self.model.classifier.values(widened_BDhw)[:, : step.num_old].max(1)
        sure = (labels_Bhw == 0) & (best >= self.config.confidence)
        return answer.where(sure, labels_Bhw)


METHOD = ACIL
