"""Counts of single test images, filled batch by batch while a step is tested."""

from __future__ import annotations

import torch
from torch import Tensor

from segue.core.classes import IGNORE
from segue.core.image_counts import PARTS
from segue.data.batches import Batch
from segue.losses.processes import sum_over_processes


class ImageTally:
    """Of several processes each fills the rows of its own images."""

    def __init__(self, images: int, channels: int, device: torch.device) -> None:
        self.counts_N3C = torch.zeros(images, len(PARTS), channels, dtype=torch.int64, device=device)
        self.first = 0
        """image that the next batch begins with"""

    def add(self, batch: Batch, predicted_BHW: Tensor) -> None:
        """Batches come in the order of the test images."""
        channels, size = self.counts_N3C.shape[2], len(batch)
        image_B11 = torch.arange(size, device=predicted_BHW.device)[:, None, None] * channels**2
        cells_BHW = image_B11 + batch.labels * channels + predicted_BHW
        cells = cells_BHW[batch.labels != IGNORE]
        confusion_BCC = torch.bincount(cells, minlength=size * channels**2).view(size, channels, channels)
        hits_BC = confusion_BCC.diagonal(dim1=1, dim2=2)
        (own,) = batch.rank_slice.places(batch.global_size)
        rows = slice(self.first + own.start, self.first + own.stop)
        self.counts_N3C[rows] = torch.stack([hits_BC, confusion_BCC.sum(2), confusion_BCC.sum(1)], dim=1)
        self.first += batch.global_size

    def total(self) -> Tensor:
        """The rows of all processes; every process has to ask."""
        return sum_over_processes(self.counts_N3C).cpu()
