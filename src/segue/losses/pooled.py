"""Distillation of pooled maps: local POD (PLOP, Douillard et al., CVPR 2021) and pooled cubes (RCIL, Zhang et
al., CVPR 2022).

Shapes: B batch, C channels, h x w. Of each squared map, and of its tiles at finer scales, only the means of
rows and of columns are compared: where something is matters, less so what exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from segue.losses._strips import wide


def pooled_strips(map_BChw: Tensor, scales: Sequence[int] = (1, 2, 4)) -> Tensor:
    """Row and column means of all tiles of a map, B x (C times sum over scales of s (h + w)).

    A scale s cuts the map into s x s tiles of h // s by w // s places; a scale larger than the map is left
    out.
    """
    strips = []
    for s in scales:
        th, tw = map_BChw.shape[-2] // s, map_BChw.shape[-1] // s
        if th == 0 or tw == 0:
            continue
        tiles = map_BChw[..., : s * th, : s * tw].unflatten(3, (s, tw)).unflatten(2, (s, th))  # B C s th s tw
        strips += [tiles.mean(5).flatten(1), tiles.mean(3).flatten(1)]
    return torch.cat(strips, dim=1)


def fold_new_logits(logits_BKhw: Tensor, num_old: int) -> Tensor:
    """The teacher's channels of the student: what is new counts as background."""
    background_B1hw = logits_BKhw[:, :1] + logits_BKhw[:, num_old:].sum(1, keepdim=True)
    return torch.cat([background_B1hw, logits_BKhw[:, 1:num_old]], dim=1)


def local_pod(
    old_maps: Sequence[Tensor],
    new_maps: Sequence[Tensor],
    num_old: int,
    num_new: int,
    factor: float = 0.01,
    logits_factor: float = 5e-4,
    scales: Sequence[int] = (1, 2, 4),
) -> Tensor:
    """Mean over maps of the distance between pooled squares; the last map is the logits, at their own stride.

    `num_old` counts the teacher's channels with background, `num_new` the classes of the step: the weight
    grows with the square root of all channels over new ones. The distance is the norm itself, not squared.
    """
    if len(old_maps) != len(new_maps):
        raise ValueError(f"{len(old_maps)} old maps, but {len(new_maps)} new ones.")
    total = torch.zeros((), device=new_maps[0].device)
    for number, (old, new) in enumerate(zip(old_maps, new_maps, strict=True), start=1):
        weight = factor
        if number == len(new_maps):
            weight, new = logits_factor, fold_new_logits(new, num_old)
        difference = pooled_strips(wide(new).square(), scales) - pooled_strips(wide(old).square(), scales)
        total = total + weight * torch.linalg.vector_norm(difference, dim=1).mean()
    return total * (math.sqrt((num_old + num_new) / num_new) / len(new_maps))


def pooled_cubes(
    old_maps: Sequence[Tensor],
    new_maps: Sequence[Tensor],
    num_old: int,
    num_new: int,
    factor: float = 0.01,
    last_factor: float = 5e-4,
    sizes: Sequence[int] = (4, 8, 12, 16, 20, 24),
) -> Tensor:
    """Distance of squared maps pooled over places, at several sizes, and over neighbouring channels.

    The last map is the logits, which are not pooled over channels. The last of each list has a weight of its
    own. As in local POD the distance is a norm, and its weight grows with all channels over new ones.
    """
    squares = [wide(each).square() for each in old_maps]
    ours = [*new_maps[:-1], fold_new_logits(new_maps[-1], num_old)]
    differences = [wide(new).square() - old for new, old in zip(ours, squares, strict=True)]
    over_places = [torch.stack([_norm(_pooled(each, size)) for size in sizes]).mean() for each in differences]
    over_channels = [_norm(F.avg_pool3d(each[:, None], (3, 1, 1), 1, (1, 0, 0))) for each in differences[:-1]]
    total = torch.zeros((), device=new_maps[0].device)
    for distances in (over_places, over_channels):
        weighed = factor * sum(distances[:-1]) + last_factor * distances[-1]
        total = total + weighed / len(distances)
    return total * math.sqrt((num_old + num_new) / num_new)


def _pooled(map_BChw: Tensor, size: int) -> Tensor:
    """Means over squares of places, rows first and then columns: a square at once would cost its area."""
    rows_BChw = F.avg_pool2d(map_BChw, (size, 1), 1, (size // 2, 0))
    return F.avg_pool2d(rows_BChw, (1, size), 1, (0, size // 2))


def _norm(map_BChw: Tensor) -> Tensor:
    """Mean over images of the norm of a map."""
    return torch.linalg.vector_norm(map_BChw.flatten(1), dim=1).mean()
