"""STAR: prototype replay (Chen et al., NeurIPS 2023), on heads without background as in DKD.

Of each class a Gaussian is kept: where its features point, their scatter and length, and how many there were.
Every iteration replays as many made-up features as the step lacks of the old classes, as "none of the new
ones". The head's map is held to the teacher's where the teacher sees an old class, and new classes are kept
away from old directions. Nothing distils outputs: old classifiers stay, because features stay.

`adapt` adds what Adapter (AAAI 2025) does: a class is replayed at least once, less background is added where
new classes are mixed with old ones, the margin between the two likeliest classes is widened, and what is kept
follows the features as they drift (in the released code that last part is never called).

`mixture` adds what CoGaMiD (NeurIPS 2025) describes, **re-derived**: three Gaussians per class are replayed,
kept apart from and moved with the features, and their likelihoods are held to the teacher's beside h.
Departures from the released code: docs/methods.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from segue.core.config import NonNegative, Positive, added
from segue.core.declaration import About, BenchmarkValues, ClassMemory, Start
from segue.core.scenario import Step
from segue.data.batches import Batch
from segue.losses import labels_of_map, wide
from segue.losses.mixtures import likelihood_distance
from segue.losses.processes import sum_over_processes
from segue.losses.pseudo import most_likely
from segue.losses.replay import held_features, likeness, no_new_class, shrunk, sure_margin, uncertain
from segue.losses.sigmoid import class_scores
from segue.methods._stores import Sure
from segue.methods._stores.gaussians import Gaussians
from segue.methods._stores.mixtures import Mixtures
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
    mixture: bool = added(False)
    """parts of CoGaMiD: three Gaussians per class that follow the features, likelihoods like the teacher's"""


class STAR(Method):
    Config = Config
    about = About(
        *("Prototype replay", "Chen et al., NeurIPS", 2023, "72.9"),
        keeps="teacher, features",
        of_class=ClassMemory(h=2, numbers=3 + 2),
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
        kind = Mixtures if config.mixture else Gaussians
        self.store = kind(model.classifier.in_channels, per_class=1)
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
        num_old, iterations = ctx.step.num_old, 0
        places = torch.zeros(num_old + 2, device=ctx.device)  # the last two: new classes, and ignored
        for batch in ctx.loader:
            old = self.teacher(batch.images)
            labels = labels_of_map(batch.labels, old.logits)
            others = torch.where(labels < ctx.step.num_channels, num_old, num_old + 1)
            answers = self.answers(old.logits).where(labels == 0, others)
            places = places + torch.bincount(answers.flatten(), minlength=num_old + 2)
            iterations += 1
        places = sum_over_processes(places)
        seen, new, kept = places[:num_old], places[num_old], self.store.counts[:num_old]
        each = ((kept - seen).clamp_min(0) / max(iterations, 1)).floor().long()
        if self.config.adapt:
            each = each.clamp_min(1)
        each[0] = 0  # the batch itself has background
        self.replayed.copy_(each * (kept > 0))
        self.all_replayed = int(self.replayed.sum())
        faded = self.background * (1 - FADES * len(ctx.step.new))
        missing = faded - 0.5 * seen[0]
        if self.config.adapt:
            known = (seen[1:] / kept[1:].clamp_min(1)).amax().clamp_max(1)
            missing = faded - known * new
        self.background_factor.copy_((missing / seen[0].clamp_min(1)).clamp_min(0))
        self.background.copy_(faded + 0.5 * seen[0])

    def answers(self, logits: Tensor) -> Tensor:
        """The class that a model answers with at each place, 0 where no score is high enough."""
        best, index = logits[:, 1:].max(1)
        return torch.where(best > self.config.sure_logit, index + 1, 0)

    def known(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Pixels of the background that the teacher calls an old class."""
        bar = logits.new_full(logits[:, :1].shape, self.config.sure_logit)
        answers = most_likely(torch.cat([bar, logits[:, 1:]], dim=1), labels.shape[-2:])[1]
        return (labels == 0) & (answers > 0)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        config, step, out = self.config, self.step, self.model(batch.images)
        scores = out.logits[:, 1:]
        if self.teacher is None:
            return {"bce": class_scores(scores, batch.labels, 0, config.positive_weight)}
        old, num_old = self.teacher(batch.images), step.num_old - 1
        labelled = class_scores(scores, batch.labels, num_old, config.positive_weight)
        h, old_h = out.features["h"], old.features["h"]
        new = torch.stack([shrunk(batch.labels == k, h) for k in range(step.num_old, step.num_channels)])
        known = shrunk(self.known(old.logits, batch.labels), h)
        held = held_features(h, old_h, known)
        if isinstance(self.store, Mixtures):
            held = held + likelihood_distance(h, old_h, known, self.store.of_classes(step.num_old))
        terms = {
            "bce": self.with_replay(labelled, out, old, batch.labels),
            "features": config.feature_weight * held,
            "apart": config.apart_weight * likeness(h, new, self.store.directions_of(step.num_old)),
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
        if (self.config.adapt or self.config.mixture) and self.teacher is not None:
            self.store.follow(self.sure_places(ctx), ctx.step.num_old)
        self.store.collect(self.model.refined, ctx.loader, ctx.step)
        if ctx.step.first:
            self.background.copy_(self.store.counts[0])
        self.model.train()

    def sure_places(self, ctx: StepContext) -> Iterator[Sure]:
        """Places of the background where student and teacher are sure of the same old class."""
        assert self.teacher is not None
        for batch in ctx.loader:
            old, out = self.teacher(batch.images), self.model(batch.images)
            labels, answers = labels_of_map(batch.labels, old.logits), self.answers(old.logits)
            both = sure_margin(old.logits, SURE) & sure_margin(out.logits[:, : ctx.step.num_old], SURE)
            both &= (labels == 0) & (answers > 0) & (answers == self.answers(out.logits))
            features, old_features = (wide(each.features["h"]).movedim(1, -1)[both] for each in (out, old))
            yield Sure(answers[both], features, old_features)


METHOD = STAR
