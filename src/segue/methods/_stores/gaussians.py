"""One Gaussian per class: where its features point, how far they scatter, and how long they are (STAR, Chen
et al., NeurIPS 2023). Two vectors and three numbers a class.

Shapes: B batch, F channels of the head's map h, h x w, K channels, M features that are drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from segue.core.scenario import Step
from segue.data.batches import Batch
from segue.data.transfer import sent
from segue.losses import finest, labels_of_map, wide
from segue.losses.processes import sum_over_processes
from segue.losses.prototypes import class_sums
from segue.methods._stores import Once, Sure, labels_to_draw

LEAST_LENGTH = 1e-6


class Gaussians(nn.Module):
    """The classes that have been seen, each by its direction, its scatter and its length.

    A feature is a direction times a length. Background is a class like others.
    """

    directions: Tensor
    scatters: Tensor
    lengths: Tensor
    length_scatters: Tensor
    counts: Tensor

    def __init__(self, channels: int, per_class: int) -> None:
        super().__init__()
        self.per_class, self._once = per_class, Once()
        for name in ("directions", "scatters"):
            self.register_buffer(name, torch.zeros(0, channels))
        for name in ("lengths", "length_scatters", "counts"):
            self.register_buffer(name, torch.zeros(0))

    def _load_from_state_dict(self, *given: Any) -> None:
        self._once.forget()
        super()._load_from_state_dict(*given)

    def grow(self, step: Step) -> None:
        self._once.forget()
        more = step.num_channels - len(self.counts)
        for name, value in list(self.named_buffers()):
            setattr(self, name, F.pad(value, (0, more) if value.dim() == 1 else (0, 0, 0, more)))

    @torch.no_grad()
    def collect(self, features: Callable[[Tensor], Tensor], batches: Iterable[Batch], step: Step) -> None:
        """Take the classes of a step, and in the first background, from one pass over its images."""
        self._once.forget()
        channels, kind = step.num_channels, finest(self.counts.device)
        totals: list[Tensor] = []
        for batch in batches:
            h_BFhw = wide(features(batch.images))
            labels_Bhw = labels_of_map(batch.labels, h_BFhw)
            length_B1hw = h_BFhw.norm(dim=1, keepdim=True).clamp_min(LEAST_LENGTH)
            unit_BFhw = h_BFhw / length_B1hw
            both = torch.cat([unit_BFhw, unit_BFhw.square(), length_B1hw, length_B1hw.square()], dim=1)
            sums_KV, counts_K = class_sums(both, labels_Bhw, channels)
            totals.append(torch.cat([sums_KV, counts_K[:, None].to(sums_KV.dtype)], dim=1).to(kind))
        width = self.directions.shape[1]
        nothing = torch.zeros(channels, 2 * width + 3, dtype=kind, device=self.counts.device)
        sums_KV = sum_over_processes(sum(totals, nothing))
        fresh = torch.arange(channels, device=sums_KV.device) >= (0 if step.first else step.num_old)
        self._take(sums_KV, fresh & (sums_KV[:, -1] > 0))

    def _take(self, sums_KV: Tensor, chosen_K: Tensor) -> None:
        width, counts_K = self.directions.shape[1], sums_KV[:, -1]
        means_KV = sums_KV / counts_K.clamp_min(1)[:, None]
        first_KF, second_KF = means_KV[:, :width], means_KV[:, width : 2 * width]
        length_K, square_K = means_KV[:, 2 * width], means_KV[:, 2 * width + 1]
        direction_KF = F.normalize(first_KF, dim=1)
        # the scatter is around the direction, not around the mean, which is shorter
        scatter_KF = (second_KF - 2 * direction_KF * first_KF + direction_KF.square()).clamp_min(0).sqrt()
        spread_K = (square_K - length_K.square()).clamp_min(0).sqrt()
        values = (direction_KF, scatter_KF, length_K, spread_K, counts_K)
        for (name, kept), value in zip(list(self.named_buffers()), values, strict=True):
            where = chosen_K if kept.dim() == 1 else chosen_K[:, None]
            setattr(self, name, torch.where(where, value.to(kept.dtype), kept))

    def like(self, labels_M: Tensor, generator: torch.Generator, by_element: bool = False) -> Tensor:
        """New features of some classes: M x F. `by_element` draws a length for each number, not for each
        feature, as the released code does."""
        shape, kind = (len(labels_M), self.directions.shape[1]), self.directions.dtype
        scatter_MF = sent(torch.randn(shape, generator=generator).to(kind), labels_M.device)
        width = shape[1] if by_element else 1
        stretch_MX = sent(torch.randn(shape[0], width, generator=generator).to(kind), labels_M.device)
        unit_MF = self.directions[labels_M] + self.scatters[labels_M] * scatter_MF
        length_M1, spread_M1 = self.lengths[labels_M, None], self.length_scatters[labels_M, None]
        return unit_MF * (length_M1 + spread_M1 * stretch_MX)

    def draw(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """`per_class` features of each class that has been seen, with their labels."""
        labels_M = self._once("labels", lambda: labels_to_draw(self.counts, self.per_class))
        return self.like(labels_M, generator), labels_M

    def directions_of(self, num_old: int) -> Tensor:
        """Where the old classes point, without background: J x F."""
        return self.directions[1:num_old]

    @torch.no_grad()
    def follow(self, places: Iterable[Sure], num_old: int) -> None:
        """Move what is kept of old classes as their features have moved, where both models are sure
        (Adapter, AAAI 2025)."""
        kind = finest(self.counts.device)
        sums = self.directions.new_zeros(2, num_old, self.directions.shape[1], dtype=kind)
        counts = torch.zeros(num_old, device=sums.device, dtype=sums.dtype)
        for place in places:
            for side, features_NF in enumerate((place.old_features_NF, place.features_NF)):
                unit_NF = F.normalize(wide(features_NF), dim=1).to(sums.dtype)
                sums[side].index_add_(0, place.labels_N, unit_NF)
            counts.index_add_(0, place.labels_N, torch.ones_like(place.labels_N, dtype=sums.dtype))
        before, after = F.normalize(sum_over_processes(sums), dim=2)
        share = sum_over_processes(counts) / self.counts[:num_old].clamp_min(1)
        move = (share[:, None] * (after - before)).to(self.directions.dtype)
        self.directions[:num_old] += move
        self.scatters[:num_old] += move.abs()
