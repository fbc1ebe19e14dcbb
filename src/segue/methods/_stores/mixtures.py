"""Three Gaussians per class, fitted to its features: replay of classes that look like more than one thing
(CoGaMiD, NeurIPS 2025; **re-derived**, no code was published). Six vectors and four numbers a class.

Shapes: F channels of the head's map h, C components of a class, K channels, N features, M features drawn.
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
from segue.losses import finest
from segue.losses.mixtures import log_densities
from segue.losses.processes import sum_over_processes
from segue.methods._stores import Once, Sure, labels_to_draw
from segue.methods._stores.places import chosen_places

COMPONENTS = 3
LEAST = 30
"""features of a class below which it has one Gaussian instead of three"""
MOST = 2048
"""features of a class that its Gaussians are fitted to"""
ROUNDS = 20
"""rounds of expectation and maximisation"""
NARROWEST = 1e-2
"""least variance of a component, relative to that of its class"""


class Mixtures(nn.Module):
    """The classes that have been seen, each by its Gaussians. Background is a class like others."""

    means: Tensor
    variances: Tensor
    shares: Tensor
    counts: Tensor

    def __init__(self, channels: int, per_class: int) -> None:
        super().__init__()
        self.per_class, self._once = per_class, Once()
        self.register_buffer("means", torch.zeros(0, COMPONENTS, channels))
        self.register_buffer("variances", torch.zeros(0, COMPONENTS, channels))
        self.register_buffer("shares", torch.zeros(0, COMPONENTS))
        self.register_buffer("counts", torch.zeros(0))

    def _load_from_state_dict(self, *given: Any) -> None:
        self._once.forget()
        super()._load_from_state_dict(*given)

    def grow(self, step: Step) -> None:
        self._once.forget()
        more = step.num_channels - len(self.counts)
        for name, value in list(self.named_buffers()):
            setattr(self, name, F.pad(value, (0, 0) * (value.dim() - 1) + (0, more)))

    @torch.no_grad()
    def collect(self, features: Callable[[Tensor], Tensor], batches: Iterable[Batch], step: Step) -> None:
        """Take the classes of a step, and in the first background, from one pass over its images."""
        self._once.forget()
        channels, first = step.num_channels, 0 if step.first else step.num_old
        quota_K = torch.tensor([0] * first + [MOST] * (channels - first), device=self.counts.device)
        chosen, numbers_K = chosen_places(features, batches, quota_K)
        for k in range(first, channels):
            features_NF = chosen.features_NF[chosen.labels_N == k].to(finest(self.counts.device))
            if len(features_NF):
                self.counts[k] = numbers_K[k]
                for kept, value in zip(self._gaussians(), fitted(features_NF), strict=True):
                    kept[k] = value.to(kept.dtype)

    def _gaussians(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.means, self.variances, self.shares

    def of_classes(self, num_old: int) -> tuple[Tensor, Tensor, Tensor]:
        """Means, variances and shares of the old classes that have been seen, without background."""
        return self._once(("classes", num_old), lambda: self._of_classes(num_old))

    def _of_classes(self, num_old: int) -> tuple[Tensor, Tensor, Tensor]:
        known = self.counts[1:num_old] > 0
        means, variances, shares = (each[1:num_old][known] for each in self._gaussians())
        return means, variances, shares

    def directions_of(self, num_old: int) -> Tensor:
        """Where the Gaussians of the old classes point, without background: J x F."""
        means, _, shares = self.of_classes(num_old)
        return self._once(("directions", num_old), lambda: F.normalize(means[shares > 0], dim=1))

    def like(self, labels_M: Tensor, generator: torch.Generator, by_element: bool = False) -> Tensor:
        """New features of some classes: M x F. There is no length of its own that `by_element` could mean."""
        kind, device = self.means.dtype, labels_M.device
        chances_M1 = sent(torch.rand(len(labels_M), 1, generator=generator).to(kind), device)
        below_MC = chances_M1 < self.shares[labels_M].cumsum(1)
        component_M = below_MC.to(torch.uint8).argmax(1)
        shape = len(labels_M), self.means.shape[2]
        noise_MF = sent(torch.randn(shape, generator=generator).to(kind), device)
        return self.means[labels_M, component_M] + self.variances[labels_M, component_M].sqrt() * noise_MF

    def draw(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """`per_class` features of each class that has been seen, with their labels."""
        labels_M = self._once("labels", lambda: labels_to_draw(self.counts, self.per_class))
        return self.like(labels_M, generator), labels_M

    @torch.no_grad()
    def follow(self, places: Iterable[Sure], num_old: int) -> None:
        """Take in the student's features of old classes that both models are sure of: one round of EM, in
        which what was kept counts by its number."""
        self._once.forget()
        width, dtype = self.means.shape[2], finest(self.counts.device)
        totals = torch.zeros(num_old, COMPONENTS, 2 * width + 1, dtype=dtype, device=self.counts.device)
        for place in places:
            joint_NKC = log_densities(place.features_NF.to(dtype), *self._doubled(num_old))
            rows_N = place.labels_N
            share_NC = joint_NKC[torch.arange(len(rows_N), device=rows_N.device), rows_N].softmax(1)
            x_NF = place.features_NF.to(dtype)
            values_NV = torch.cat([x_NF, x_NF.square(), torch.ones_like(x_NF[:, :1])], dim=1)
            totals.index_add_(0, rows_N, share_NC[:, :, None] * values_NV[:, None])
        totals = sum_over_processes(totals)
        means, variances, shares = self._doubled(num_old)
        before_KC1 = (self.counts[:num_old, None].to(dtype) * shares)[..., None]
        number_KC1 = (before_KC1 + totals[..., -1:]).clamp_min(1e-12)
        mean = (before_KC1 * means + totals[..., :width]) / number_KC1
        square = (before_KC1 * (variances + means.square()) + totals[..., width:-1]) / number_KC1
        moved_K = totals[..., -1].sum(1) > 0
        share = number_KC1[..., 0] / number_KC1[..., 0].sum(1, keepdim=True)
        variance = (square - mean.square()).clamp_min(NARROWEST * variances)
        for kept, value in zip(self._gaussians(), (mean, variance, share), strict=True):
            kept[:num_old][moved_K] = value[moved_K].to(kept.dtype)

    def _doubled(self, channels: int) -> tuple[Tensor, Tensor, Tensor]:
        means, variances, shares = (each[:channels].to(finest(each.device)) for each in self._gaussians())
        return means, variances, shares


def fitted(features_NF: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Means and variances (C x F) and shares (C) of the Gaussians of a class, by EM.

    They begin with equal thirds of the features along the channel that varies most. A class with few
    features has one Gaussian, which has the whole share.
    """
    variance_F = features_NF.var(0, correction=0)
    floor_F = NARROWEST * variance_F + torch.finfo(torch.float32).tiny
    if len(features_NF) < LEAST:
        shares_C = F.pad(features_NF.new_ones(1), (0, COMPONENTS - 1))
        mean_F, alone_F = features_NF.mean(0), variance_F.maximum(floor_F)
        return mean_F.expand(COMPONENTS, -1), alone_F.expand(COMPONENTS, -1), shares_C
    order_N = features_NF[:, variance_F.argmax()].argsort(stable=True)
    part_N = torch.empty_like(order_N)
    part_N[order_N] = torch.arange(len(order_N), device=order_N.device) * COMPONENTS // len(order_N)
    belongs_NC = F.one_hot(part_N, COMPONENTS).to(features_NF.dtype)
    for _ in range(ROUNDS):
        number_C = belongs_NC.sum(0).clamp_min(1e-12)
        means_CF = belongs_NC.mT @ features_NF / number_C[:, None]
        squares_CF = belongs_NC.mT @ features_NF.square() / number_C[:, None]
        variances_CF = (squares_CF - means_CF.square()).maximum(floor_F)
        shares_C = number_C / len(features_NF)
        each = means_CF[None], variances_CF[None], shares_C[None]
        belongs_NC = log_densities(features_NF, *each)[:, 0].softmax(1)
    return means_CF, variances_CF, shares_C
