"""Base of the methods that hold parameters back by their importance: EWC, PI, RW.

Cross-entropy on the step's labels, and a penalty for moving what mattered to the steps before. Importance is
taken from the gradient of the cross-entropy alone, in `after_backward`; the penalty's own gradient is added
there too, so that the two never mix. In a parallel run the gradients are complete at that moment, so
that every process keeps the same state.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from segue.core.declaration import Start
from segue.core.scenario import Step
from segue.data.batches import Batch
from segue.losses import cross_entropy
from segue.losses.importance import Importance
from segue.methods.base import Method, StepContext
from segue.models.network import Network


class PenalisedMethod(Method):
    """Abstract: a subclass says which importance; its config has `weight`, the factor of the penalty."""

    def __init__(self, config: Any, model: Network) -> None:
        super().__init__(config, model)
        self.importance = self.make_importance()

    @classmethod
    def start(cls, config: Any) -> Start:
        tracking = {name: value for name, value in asdict(config).items() if name != "weight"}
        return Start(gathered=tracking)

    @abstractmethod
    def make_importance(self) -> Importance:
        """The tracker of this method."""

    def grow(self, step: Step) -> None:
        self.importance.begin_step(self.tracked(), step.first)
        super().grow(step)
        self.importance.grow(self.tracked())

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        terms = {"ce": cross_entropy(self.model(batch.images).logits, batch.labels)}
        if not self.step.first:
            with torch.no_grad():  # shown, not differentiated
                terms["penalty"] = self.config.weight * self.importance.penalty(self.tracked())
        return terms

    def after_backward(self) -> None:
        parameters = self.tracked()
        self.importance.update(parameters)
        self.importance.add_penalty_gradient(parameters, self.config.weight)

    def end_step(self, ctx: StepContext) -> None:
        self.importance.end_step(self.tracked())

    def tracked(self) -> dict[str, nn.Parameter]:
        """The parameters whose importance counts."""
        return dict(self.model.named_parameters())
