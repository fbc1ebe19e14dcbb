"""Places of feature maps, chosen from one pass over a step's images.

Shapes: B batch, K channels, F channels of the head's map h, h x w, N places to choose from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from segue.data.batches import Batch
from segue.losses import labels_of_map, wide
from segue.losses.processes import sum_over_processes, this_process

SPREAD = 2654435761
"""multiplier whose products, modulo 2^32, are spread evenly: the places chosen are, too"""


def chosen_places(
    features: Callable[[Tensor], Tensor], batches: Iterable[Batch], quota_K: Tensor
) -> tuple[Places, Tensor]:
    """At most so many places of each class from one pass, and the number of all that it has.

    Both depend on the images and their order alone, not on the number of processes.
    """
    kept, images, numbers_K = None, 0, torch.zeros_like(quota_K)
    for batch in batches:
        own = torch.arange(batch.global_size)[batch.rank_slice.places(batch.global_size)[0]] + images
        found = Places.of(wide(features(batch.images)), batch.labels, own.to(quota_K.device))
        numbers_K = numbers_K + found.numbers(len(quota_K))
        kept = (found if kept is None else kept.beside(found)).first(quota_K)
        images += batch.global_size
    assert kept is not None, "a step has images"
    chosen = kept.of_all_processes(int(quota_K.sum())).first(quota_K)
    return chosen, sum_over_processes(numbers_K)


@dataclass(frozen=True)
class Places:
    """Places to choose from, each with its turn."""

    features_NF: Tensor
    labels_N: Tensor
    turns_N: Tensor

    @classmethod
    def of(cls, h_BFhw: Tensor, labels_BHW: Tensor, images_B: Tensor) -> Places:
        """All places of a map; `images_B` are the images' numbers in the whole pass."""
        size = h_BFhw.shape[-2:]
        numbers_Bhw = images_B[:, None] * size.numel() + torch.arange(size.numel(), device=images_B.device)
        turns_N = numbers_Bhw.flatten() * SPREAD % 2**32
        return cls(
            h_BFhw.permute(0, 2, 3, 1).flatten(0, 2), labels_of_map(labels_BHW, h_BFhw).flatten(), turns_N
        )

    def beside(self, other: Places) -> Places:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Places(*(torch.cat(pair) for pair in pairs))

    def numbers(self, channels: int) -> Tensor:
        """How many places each class has."""
        labels_N = self.labels_N[self.labels_N < channels]
        return torch.bincount(labels_N, minlength=channels)

    def first(self, quota_K: Tensor) -> Places:
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
        return Places(*(each[chosen] for each in vars(self).values()))

    def of_all_processes(self, room: int) -> Places:
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
        return Places(*(each[chosen] for each in spread))
