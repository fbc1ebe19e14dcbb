"""A batch: images, labels and keys, or the slice of them that one of several processes has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import itemgetter

import torch
from torch import Tensor


@dataclass(frozen=True)
class Share:
    """What one of several processes has of every batch: as much as any other, or one image less."""

    process: int = 0
    processes: int = 1

    def places(self, images: int, parts: int = 1) -> list[range]:
        """Its places in a batch of so many images, for each of the parts that the batch is split into."""
        size, found = -(-images // parts), []
        for first in range(0, images, size):
            part = min(size, images - first)
            begin, end = (
                -(-part * process // self.processes) for process in (self.process, self.process + 1)
            )
            found.append(range(first + begin, first + end))
        return found


WHOLE = Share()


@dataclass
class Batch:
    """Images (uint8, B x 3 x H x W), canonical labels (uint8; int64 on the device) and keys.

    Examples:
        >>> import segue, torch
        >>> images = torch.zeros(4, 3, 32, 32, dtype=torch.uint8)
        >>> batch = segue.Batch(images, labels=images[:, 0], keys=["a", "b", "c", "d"])
        >>> len(batch), [part.keys for part in batch.split(2)]
        (4, [['a', 'b'], ['c', 'd']])
    """

    images: Tensor
    labels: Tensor
    keys: list[str]
    salient: Tensor | None = None
    """bool, B x H x W, for a method that asks for saliency maps"""
    share: Share = WHOLE
    """what these are of a batch that several processes have"""
    in_all: int | None = None
    """images that they have together"""

    def to(self, device: torch.device) -> Batch:
        quick = device.type == "cuda"  # from pinned memory
        moved = self._each(lambda tensor: tensor.to(device, non_blocking=quick))
        return replace(moved, labels=moved.labels.long())

    def pin_memory(self) -> Batch:
        """Called by DataLoader when its batches go to CUDA."""
        return self._each(Tensor.pin_memory)

    def split(self, parts: int) -> list[Batch]:
        """At most `parts` batches of nearly equal size; a share of a batch gives its share of each part."""
        found, first = [], 0
        for places in self.share.places(self.total, parts):
            here = slice(first, first + len(places))
            part = self._each(itemgetter(here))
            found.append(replace(part, keys=self.keys[here], in_all=None, share=WHOLE))
            first = here.stop
        return found

    @property
    def total(self) -> int:
        """Images of the whole batch, in all processes."""
        return len(self) if self.in_all is None else self.in_all

    def _each(self, change: Callable[[Tensor], Tensor]) -> Batch:
        salient = None if self.salient is None else change(self.salient)
        return replace(self, images=change(self.images), labels=change(self.labels), salient=salient)

    def __len__(self) -> int:
        return len(self.images)
