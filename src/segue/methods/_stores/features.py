"""Features of earlier steps that are kept, a few per class, so that the classifier can rehearse them.

A step shows new classes only in their own surroundings; nothing in it says that they are not to be seen
elsewhere. Places of earlier steps' feature maps do: a few numbers each, and no images.

Shapes: B batch, K channels, F channels of the head's map h, h x w, M places that are kept, N places to
choose from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from segue.core.scenario import Step
from segue.data.batches import Batch
from segue.losses import labels_of_map, wide
from segue.losses.processes import sum_over_processes, this_process
from segue.methods._stores import EMPTY

SPREAD = 2654435761
"""multiplier whose products, modulo 2^32, are spread evenly: the places chosen are, too"""


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
        quota_K = torch.tensor(self._quota(step), device=self.labels.device)
        room = sum(self._quota(step))
        kept = _Places(self.features[:0], self.labels[:0], self.labels[:0])
        images = 0
        for batch in batches:
            own = torch.arange(batch.global_size)[batch.rank_slice.places(batch.global_size)[0]] + images
            found = _Places.of(wide(features(batch.images)), batch.labels, own.to(self.labels.device))
            kept = kept.beside(found).first(quota_K)
            images += batch.global_size
        kept = kept.of_all_processes(room).first(quota_K)
        filled = slice(len(self.labels) - room, len(self.labels) - room + len(kept.labels_N))
        self.features[filled], self.labels[filled] = kept.features_NF, kept.labels_N

    def draw(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """All that is kept, as it was; rooms that are not filled have the label EMPTY."""
        return self.features, self.labels


@dataclass(frozen=True)
class _Places:
    """Places to choose from, each with its turn."""

    features_NF: Tensor
    labels_N: Tensor
    turns_N: Tensor

    @classmethod
    def of(cls, h_BFhw: Tensor, labels_BHW: Tensor, images_B: Tensor) -> _Places:
        """All places of a map; `images_B` are the images' numbers in the whole pass."""
        size = h_BFhw.shape[-2:]
        numbers_Bhw = images_B[:, None] * size.numel() + torch.arange(size.numel(), device=images_B.device)
        turns_N = numbers_Bhw.flatten() * SPREAD % 2**32
        return cls(
            h_BFhw.permute(0, 2, 3, 1).flatten(0, 2), labels_of_map(labels_BHW, h_BFhw).flatten(), turns_N
        )

    def beside(self, other: _Places) -> _Places:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return _Places(*(torch.cat(pair) for pair in pairs))

    def first(self, quota_K: Tensor) -> _Places:
        """Of each class those whose turn comes first, as many as it may have; the rest goes."""
        wanted_N = (self.labels_N < len(quota_K)).nonzero()[:, 0]
        order_N = wanted_N[torch.argsort(self.turns_N[wanted_N], stable=True)]
        order_N = order_N[torch.argsort(self.labels_N[order_N], stable=True)]
        labels_N = self.labels_N[order_N]
        counts_K = torch.bincount(labels_N, minlength=len(quota_K))
        rank_N = (
            torch.arange(len(labels_N), device=labels_N.device) - (counts_K.cumsum(0) - counts_K)[labels_N]
        )
        chosen = order_N[rank_N < quota_K[labels_N]]
        return _Places(*(each[chosen] for each in vars(self).values()))

    def of_all_processes(self, room: int) -> _Places:
        """These beside those of all other processes."""
        process, processes = this_process()
        spread = []
        for each in vars(self).values():
            rooms = each.new_zeros(processes * room, *each.shape[1:])
            rooms[process * room : process * room + len(each)] = each
            spread.append(sum_over_processes(rooms))
        filled = self.turns_N.new_zeros(processes * room)
        filled[process * room : process * room + len(self.turns_N)] = 1
        chosen = sum_over_processes(filled).nonzero()[:, 0]
        return _Places(*(each[chosen] for each in spread))
