"""RCIL's pooled cubes: by hand, and that equal maps are no distance apart."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from segue.losses.pooled import fold_new_logits, pooled_cubes

OLD, NEW = 3, 2


def maps(seed: int, channels: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    sizes = ((4, 6), (8, 3), (channels, 3))
    return [torch.randn(2, c, s, s, generator=generator) for c, s in sizes]


def by_hand(old: list[Tensor], new: list[Tensor]) -> Tensor:
    new = [*new[:-1], fold_new_logits(new[-1], OLD)]
    total = torch.zeros(())
    for number, (a, b) in enumerate(zip(old, new, strict=True)):
        last = number == len(old) - 1
        difference = b.square() - a.square()
        norms = []
        for k in (4, 8, 12, 16, 20, 24):
            pooled = F.avg_pool2d(difference, k, stride=1, padding=k // 2)
            norms.append(torch.stack([torch.linalg.norm(image) for image in pooled]).mean())
        total = total + (5e-4 if last else 0.01) * torch.stack(norms).mean() / len(old)
        if not last:
            padded = F.pad(difference, (0, 0, 0, 0, 1, 1))
            pooled = (padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:]) / 3
            norm = torch.stack([torch.linalg.norm(image) for image in pooled]).mean()
            weight = 5e-4 if number == len(old) - 2 else 0.01
            total = total + weight * norm / (len(old) - 1)
    return total * math.sqrt((OLD + NEW) / NEW)


def test_places_and_channels_are_pooled() -> None:
    old, new = maps(0, OLD), maps(1, OLD + NEW)
    torch.testing.assert_close(pooled_cubes(old, new, OLD, NEW), by_hand(old, new))


def test_equal_maps_are_no_distance_apart() -> None:
    old = maps(0, OLD)
    silent = F.pad(old[-1], (0, 0, 0, 0, 0, NEW))
    assert pooled_cubes(old, [*old[:-1], silent], OLD, NEW) == 0
