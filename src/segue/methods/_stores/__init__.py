"""What is kept of classes whose images are gone, as numbers instead of images.

A store makes room when a step begins (`grow`), takes its share from one pass over the step's images
(`collect`) and gives features with their labels back (`draw`), as they were or as new ones like them. It is a
module: its content is part of the method's state and so of checkpoints and model folders.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from segue.core.scenario import Step
from segue.data.batches import Batch
from segue.losses import labels_of_map, wide
from segue.models.network import Classifier

T = TypeVar("T")
EMPTY = 255
"""label of a place in a store that is not filled: classes may have fewer pixels than there is room for"""


@dataclass(frozen=True)
class Sure:
    """Places of a batch that teacher and student are sure of: the class, and the features of both."""

    labels_N: Tensor
    features_NF: Tensor
    old_features_NF: Tensor


class Store(Protocol):
    """The interface that methods use."""

    per_class: int
    """places that each class has when they are drawn"""

    def grow(self, step: Step) -> None: ...

    def collect(self, features: Callable[[Tensor], Tensor], batches: Iterable[Batch], step: Step) -> None: ...

    def draw(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Features, M x F, and their labels, M."""
        ...


class Once:
    """Answers of the device that stay the same until they are forgotten: each question makes a host wait."""

    def __init__(self) -> None:
        self._answers: dict[Hashable, Any] = {}

    def __call__(self, question: Hashable, ask: Callable[[], T]) -> T:
        if question not in self._answers:
            self._answers[question] = ask()
        answer: T = self._answers[question]
        return answer

    def forget(self) -> None:
        self._answers.clear()


def labels_to_draw(counts_K: Tensor, per_class: int) -> Tensor:
    """So many labels of each class of which something is kept."""
    known = [k for k, count in enumerate(counts_K.tolist()) if count > 0]
    return torch.tensor(known, device=counts_K.device).repeat_interleave(per_class)


def bytes_per_class(store: nn.Module, classes: int) -> float:
    """Memory that a store takes, divided by the number of its classes."""
    return sum(value.numel() * value.element_size() for value in store.buffers()) / max(classes, 1)


def rehearsal_loss(
    drawn: tuple[Tensor, Tensor],
    per_class: int,
    classifier: Classifier,
    logits_BKhw: Tensor,
    labels_BHW: Tensor,
    step: Step,
) -> Tensor:
    """Mean cross-entropy of the classifier on what is kept and, beside it, on new classes in the batch.

    What is drawn comes with labels (M), or with the teacher's probabilities (M x O), from which the
    classifier's then diverge. Without the places of new classes all of it would say that nothing is new; they
    teach the network too. They count as if `per_class` places of each new class were kept; images count
    alike, so that a batch may be split. Where nothing is kept, as of a network from elsewhere, the
    loss is 0: new classes alone would only spread.
    """
    features_MF, targets = drawn
    logits_MK = wide(classifier.at_places(features_MF))
    if targets.is_floating_point():
        answers_MO = logits_MK.log_softmax(1)[:, : targets.shape[1]]
        kept = F.kl_div(answers_MO, targets, reduction="sum")
        count = targets.new_full((), len(targets))  # new_tensor would be a copy that waits
    else:
        kept = F.cross_entropy(logits_MK, targets, ignore_index=EMPTY, reduction="sum")
        count = (targets != EMPTY).sum()
    labels_Bhw = labels_of_map(labels_BHW, logits_BKhw)
    labels_Bhw = labels_Bhw.where((step.num_old <= labels_Bhw) & (labels_Bhw < step.num_channels), EMPTY)
    losses_Bhw = F.cross_entropy(wide(logits_BKhw), labels_Bhw, ignore_index=EMPTY, reduction="none")
    counts_B = (labels_Bhw != EMPTY).sum((1, 2)).clamp_min(1)
    new = (losses_Bhw.sum((1, 2)) / counts_B).mean()
    room = per_class * len(step.new)
    return (count > 0) * (kept + room * new) / (count + room).clamp_min(1)
