"""Features of earlier steps that are kept, a few per class, so that the classifier can rehearse them.

A step shows new classes only in their own surroundings; nothing in it says that they are not to be seen
elsewhere. Places of earlier steps' feature maps do: a few numbers each, and no images.

Shapes: F channels of the head's map h, K channels, M places that are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from segue.core.scenario import Step
from segue.data.batches import Batch
from segue.methods._stores import EMPTY
from segue.methods._stores.places import chosen_places


class FeatureMemory(nn.Module):
    """Places with their labels; room for those of a step is made when the step begins.

    Which places are kept depends on the images and their order alone, not on the number of processes.
    """

    def __init__(self, channels: int, per_class: int, background: int) -> None:
        super().__init__()
        self.per_class, self.background = per_class, background
        self.register_buffer("features", torch.zeros(0, channels))
        self.register_buffer("labels", torch.zeros(0, dtype=torch.long))

    def grow(self, step: Step) -> None:
        """Room for the channels of a step: new classes and, in the first, background."""
        room = sum(self._quota(step))
        self.features = F.pad(self.features, (0, 0, 0, room))
        self.labels = F.pad(self.labels, (0, room), value=EMPTY)

    def _quota(self, step: Step) -> list[int]:
        """How many places each channel may have of a step."""
        old = [self.background] if step.first else [0] * step.num_old
        return old + [self.per_class] * len(step.new)

    @torch.no_grad()
    def collect(self, features: Callable[[Tensor], Tensor], batches: Iterable[Batch], step: Step) -> None:
        """Fill the room of a step from one pass over its images."""
        room = sum(self._quota(step))
        quota_K = torch.tensor(self._quota(step), device=self.labels.device)
        kept, _ = chosen_places(features, batches, quota_K)
        filled = slice(len(self.labels) - room, len(self.labels) - room + len(kept.labels_N))
        self.features[filled], self.labels[filled] = kept.features_NF, kept.labels_N

    def draw(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """All that is kept, as it was; rooms that are not filled have the label EMPTY."""
        return self.features, self.labels
