"""A batch: images, labels and keys, or the slice of them that one of several processes has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import itemgetter

import torch
from torch import Tensor

from segue.data.transfer import sent


@dataclass(frozen=True)
class RankSlice:
    """What one of several processes has of every global batch: as much as any other, or one image less."""

    rank: int = 0
    world_size: int = 1

    def places(self, images: int, micro_batches: int = 1) -> list[range]:
        """Its places in a global batch of so many images, one range for each micro-batch."""
        largest = -(-images // micro_batches)
        ranges = []
        for first in range(0, images, largest):
            size = min(largest, images - first)
            begin, end = (-(-size * rank // self.world_size) for rank in (self.rank, self.rank + 1))
            ranges.append(range(first + begin, first + end))
        return ranges


WHOLE = RankSlice()


@dataclass
class Batch:
    """Images (uint8, B x 3 x H x W), canonical labels (uint8; int64 on the device) and keys.

    Examples:
        >>> import segue, torch
        >>> images = torch.zeros(4, 3, 32, 32, dtype=torch.uint8)
        >>> batch = segue.Batch(images, labels=images[:, 0], keys=["a", "b", "c", "d"])
        >>> len(batch), [micro_batch.keys for micro_batch in batch.split(2)]
        (4, [['a', 'b'], ['c', 'd']])
    """

    images: Tensor
    labels: Tensor
    keys: list[str]
    salient: Tensor | None = None
    """saliency maps (bool, B x H x W), for a method that asks for them"""
    earlier: Tensor | None = None
    """images of earlier steps that are shown again (bool, B); None: the step's own images alone"""
    frozen: tuple[Tensor, ...] = ()
    """outputs of the network's frozen stages for these images, if they are known"""
    rank_slice: RankSlice = WHOLE
    """slice of the global batch that these images are"""
    global_size: int = 0
    """number of images in the global batch, over all processes; 0: these images are all"""

    def __post_init__(self) -> None:
        self.global_size = self.global_size or len(self.images)

    def to(self, device: torch.device) -> Batch:
        moved = self._changed(lambda tensor: sent(tensor, device))
        return replace(moved, labels=moved.labels.long())

    def pin_memory(self) -> Batch:
        """Called by DataLoader when its batches go to CUDA."""
        return self._changed(Tensor.pin_memory)

    def split(self, micro_batches: int) -> list[Batch]:
        """At most so many batches of nearly equal size; a slice of a batch gives its slice of each."""
        batches, first = [], 0
        for places in self.rank_slice.places(self.global_size, micro_batches):
            here = slice(first, first + len(places))
            micro_batch = self._changed(itemgetter(here))
            batches.append(replace(micro_batch, keys=self.keys[here], global_size=0, rank_slice=WHOLE))
            first = here.stop
        return batches

    def _changed(self, change: Callable[[Tensor], Tensor]) -> Batch:
        images, labels, frozen = change(self.images), change(self.labels), tuple(map(change, self.frozen))
        salient, earlier = (None if each is None else change(each) for each in (self.salient, self.earlier))
        return replace(self, images=images, labels=labels, salient=salient, earlier=earlier, frozen=frozen)

    def __len__(self) -> int:
        return len(self.images)
