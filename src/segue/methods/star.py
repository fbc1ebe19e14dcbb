"""STAR: prototype replay (Chen et al., NeurIPS 2023), on heads without background as in DKD.

Of each class a Gaussian is kept: where its features point, their scatter and length, and how many there were.
Every iteration replays as many made-up features as the step lacks of the old classes, as "none of the new
ones". The head's map is held to the teacher's where the teacher sees an old class, and new classes are kept
away from old directions. Nothing distils outputs: old classifiers stay, because features stay.

`adapt` adds what Adapter (AAAI 2025) does: a class is replayed at least once, the margin between the two
likeliest classes is widened, and what is kept follows the features as they drift (in the released code that
last part is never called).

Departures: scatter of new classes is taken around their own directions, where the released code takes those
of the first classes; no old pixel in a batch gives no loss instead of 0/0; the rule of overlapped steps is
used in all modes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from segue.core.config import NonNegative, Positive
from segue.core.declaration import About, BenchmarkValues, Start
from segue.core.scenario import Step
from segue.data.batches import Batch
from segue.losses import labels_of_map, wide
from segue.losses.processes import sum_over_processes
from segue.losses.pseudo import most_likely
from segue.losses.replay import held_features, likeness, no_new_class, shrunk, uncertain
from segue.losses.sigmoid import class_scores
from segue.methods._stores.gaussians import Gaussians
from segue.methods.base import Method, StepContext
from segue.models.classifier import SigmoidClassifier
from segue.models.network import Network, Output

FADES = 0.01
"""share of the background that each new class takes"""
SURE = 0.7
"""probability, or margin between the two likeliest classes, from which on Adapter calls an answer sure"""


@dataclass(frozen=True)
class Config:
    feature_weight: NonNegative = 5.0
    """weight of the distance to the teacher's features where it sees an old class"""
    apart_weight: NonNegative = 0.05
    """weight of the likeness of new classes to what is kept of old ones"""
    positive_weight: Positive = 1.0
    """weight of a class's own pixels"""
    sure_logit: float = 0.0
    """least score of a class that the teacher answers with; the authors' code has 0.5"""
    length: Literal["feature", "element"] = "feature"
    """one length per replayed feature, or one per number as in the authors' code"""
    adapt: bool = False
    """parts of Adapter: least replay, margins, and Gaussians that follow the features"""
    margin_weight: NonNegative = 0.1
    """weight of the missing margin between the two likeliest classes, with adapt"""


class STAR(Method):
    Config = Config
    about = About(
        "Prototype replay", "Chen et al., NeurIPS", 2023, published="72.9", keeps="teacher, features"
    )
    benchmark_values = (
        BenchmarkValues(
            "voc",
            None,
            {"optim": {"lr_first": 1e-3, "lr_next": 1e-4, "head_factor": 10.0, "new_factor": 100.0},
             "train": {"epochs": 60}, "method": {"params": {"positive_weight": 4.0}}},
        ),
        BenchmarkValues(
            "ade20k",
            None,
            {"optim": {"lr_first": 2.5e-3, "lr_next": 2.5e-4, "head_factor": 10.0, "new_factor": 100.0},
             "train": {"epochs": 100}, "method": {"params": {"positive_weight": 30.0}}},
        ),
    )  # fmt: skip
    uses_teacher = True
    needs = frozenset({"h", "classifier"})

    @classmethod
    def start(cls, config: Config) -> Start:
        return Start({"heads": "sigmoid", "positive_weight": config.positive_weight})

    def __init__(self, config: Config, model: Network) -> None:
        super().__init__(config, model)
        model.classifier = SigmoidClassifier(model.classifier.in_channels)
        self.store = Gaussians(model.classifier.in_channels, per_class=1)
        self.register_buffer("background", torch.zeros(()))
        """number of background places, as it fades from step to step"""
        self.register_buffer("replayed", torch.zeros(0, dtype=torch.long))
        self.register_buffer("background_factor", torch.zeros(()))
        self.all_replayed = 0
        """sum of `replayed`, known to the host: asking the device for it would make every iteration wait"""

    def grow(self, step: Step) -> None:
        super().grow(step)
        self.store.grow(step)
        self.replayed = self.replayed.new_zeros(0 if step.first else step.num_old)

    @torch.no_grad()
    def begin_step(self, ctx: StepContext) -> None:
        """What the step lacks of the old classes, by the teacher's answers on its background."""
        self.generator = ctx.generator
        if self.teacher is None:
            return
        step, iterations = ctx.step, 0
        seen = torch.zeros(step.num_old + 1, device=ctx.device)
        for batch in ctx.loader:
            old = self.teacher(batch.images)
            labels = labels_of_map(batch.labels, old.logits)
            answers = self.answers(old.logits).where(labels == 0, step.num_old)
            seen = seen + torch.bincount(answers.flatten(), minlength=step.num_old + 1)
            iterations += 1
        seen = sum_over_processes(seen)[:-1]
        lacking = (self.store.counts[: step.num_old] - seen).clamp_min(0)
        each = (lacking / max(iterations, 1)).floor().long()
        if self.config.adapt:
            each = each.clamp_min(1)
        each[0] = 0  # the batch itself has background
        self.replayed.copy_(each * (self.store.counts[: step.num_old] > 0))
        self.all_replayed = int(self.replayed.sum())
        faded = self.background * (1 - FADES * len(step.new))
        self.background_factor.copy_((faded / seen[0].clamp_min(1) - 0.5).clamp_min(0))
        self.background.copy_(faded + 0.5 * seen[0])

    def answers(self, logits: Tensor) -> Tensor:
        """The class that a model answers with at each place, 0 where no score is high enough."""
        best, index = logits[:, 1:].max(1)
        return torch.where(best > self.config.sure_logit, index + 1, 0)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        config, step, out = self.config, self.step, self.model(batch.images)
        scores = out.logits[:, 1:]
        if self.teacher is None:
            return {"bce": class_scores(scores, batch.labels, 0, config.positive_weight)}
        old, num_old = self.teacher(batch.images), step.num_old - 1
        labelled = class_scores(scores, batch.labels, num_old, config.positive_weight)
        h, size = out.features["h"], batch.labels.shape[-2:]
        known = (batch.labels == 0) & (most_likely(old.logits, size)[1] > 0)
        new = torch.stack([shrunk(batch.labels == k, h) for k in range(step.num_old, step.num_channels)])
        terms = {
            "bce": self.with_replay(labelled, out, old, batch.labels),
            "features": config.feature_weight * held_features(h, old.features["h"], shrunk(known, h)),
            "apart": config.apart_weight * likeness(h, new, self.store.directions[1 : step.num_old]),
        }
        if config.adapt:
            labels = labels_of_map(batch.labels, scores)
            terms["margin"] = config.margin_weight * uncertain(scores, labels, SURE)
        return terms

    def with_replay(self, labelled: Tensor, out: Output, old: Output, labels: Tensor) -> Tensor:
        """The image's own loss with replayed features and background beside it, each by its number."""
        first = self.step.num_old - 1
        scores, labels_Bhw = out.logits[:, 1:], labels_of_map(labels, out.logits)
        cells = labels_Bhw.numel()
        weight, total = 1.0, labelled
        if self.all_replayed:
            wanted = torch.repeat_interleave(self.replayed, output_size=self.all_replayed)
            drawn = self.store.like(wanted, self.generator, self.config.length == "element")
            replayed = self.model.classifier.scores(drawn[:, :, None, None])[:, first:, 0, 0]
            share = self.all_replayed / cells
            total, weight = total + share * no_new_class(replayed).mean(), weight + share
        background = (labels_Bhw == 0) & (self.answers(old.logits) == 0)
        losses = no_new_class(scores[:, first:].movedim(1, -1).flatten(0, 2))
        factor = self.background_factor / cells
        # the mean over background places times their number
        total = total + factor * (losses * background.flatten()).sum()
        return total / (weight + factor * background.sum())

    @torch.no_grad()
    def end_step(self, ctx: StepContext) -> None:
        self.model.eval()
        if self.config.adapt and self.teacher is not None:
            self.follow(ctx)
        self.store.collect(self.model.refined, ctx.loader, ctx.step)
        if ctx.step.first:
            self.background.copy_(self.store.counts[0])
        self.model.train()

    def follow(self, ctx: StepContext) -> None:
        """Move what is kept of old classes as their features have moved, where both models are sure."""
        num_old, width = ctx.step.num_old, self.store.directions.shape[1]
        sums = torch.zeros(2, num_old, width, device=ctx.device, dtype=self.store.directions.dtype)
        counts = torch.zeros(num_old, device=ctx.device, dtype=sums.dtype)
        for batch in ctx.loader:
            old, out = self.teacher(batch.images), self.model(batch.images)
            labels = labels_of_map(batch.labels, old.logits)
            sure = sure_margin(old.logits) & sure_margin(out.logits[:, :num_old])
            answers = self.answers(old.logits)
            both = sure & (labels == 0) & (answers > 0) & (answers == self.answers(out.logits))
            rows = answers.where(both, 0).flatten()
            for place, each in enumerate((old, out)):
                unit = F.normalize(wide(each.features["h"]), dim=1) * both[:, None]
                sums[place].index_add_(0, rows, unit.movedim(1, -1).flatten(0, 2).to(sums.dtype))
            counts.index_add_(0, rows, both.flatten().to(counts.dtype))
        before, after = F.normalize(sum_over_processes(sums), dim=2)
        share = sum_over_processes(counts) / self.store.counts[:num_old].clamp_min(1)
        move = share[:, None] * (after - before)
        self.store.directions[:num_old] += move
        self.store.scatters[:num_old] += move.abs()


def sure_margin(logits: Tensor) -> Tensor:
    """Where the two likeliest classes are far apart."""
    p = wide(logits[:, 1:]).sigmoid()
    top = F.pad(p, (0, 0, 0, 0, 0, 1)).topk(2, dim=1)[0]
    return top[:, 0] - top[:, 1] > SURE


METHOD = STAR
