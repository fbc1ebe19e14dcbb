"""Outputs of frozen stages, computed once and kept: `train.cache_frozen`.

A pass through the frozen stages serves student and teacher. With a fixed number of views per image
(`train.views`) it serves all epochs, too: the outputs of each view are kept in memory as float16, up to
`train.cache_gb`; those that do not fit are computed again. Either way they are computed one image at a time
and rounded alike: the numbers depend neither on the batch in which a view comes first nor on the room there
is, so that a resumed run goes on bit for bit. Each process keeps what it has seen itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from segue.core.config import RunConfig
from segue.core.progress import Display
from segue.data.batches import Batches
from segue.engine.device import autocast
from segue.methods.base import Method
from segue.models.network import Network


class FrozenCache:
    """From images and their (position, seed) to the outputs of a network's frozen stages."""

    kept_as = torch.float16

    def __init__(
        self,
        model: Network,
        room: float,
        views: bool = True,
        every_stage: bool = False,
        precision: str = "fp32",
    ) -> None:
        """`room` is in bytes. Without `views` no image comes twice, and nothing is kept or rounded."""
        self.model, self.room, self.views, self.every_stage = model, room, views, every_stage
        self.precision = precision
        self.bytes = 0
        """bytes that are kept"""
        self.computed = 0
        """number of images that went through the frozen stages"""
        self._kept: dict[tuple[int, int], tuple[Tensor, ...]] = {}

    def __call__(self, images_B3HW: Tensor, views: Sequence[tuple[int, int]]) -> tuple[Tensor, ...]:
        if not self.views:
            return self._compute(images_B3HW)
        each = [self._of(image[None], view) for image, view in zip(images_B3HW, views, strict=True)]
        given = images_B3HW.device, self._dtype
        return tuple(torch.cat(maps).to(*given) for maps in zip(*each, strict=True))

    def _of(self, image_13HW: Tensor, view: tuple[int, int]) -> tuple[Tensor, ...]:
        if view in self._kept:
            return self._kept[view]
        maps = tuple(_rounded(each, self.kept_as).cpu() for each in self._compute(image_13HW))
        size = sum(each.nbytes for each in maps)
        if self.bytes + size <= self.room:
            self._kept[view] = maps
            self.bytes += size
        return maps

    def _compute(self, images_B3HW: Tensor) -> tuple[Tensor, ...]:
        self.computed += len(images_B3HW)
        with autocast(images_B3HW.device, self.precision):
            maps = self.model.frozen_maps(images_B3HW, self.every_stage)
        self._dtype = maps[-1].dtype
        return maps


def _rounded(maps: Tensor, dtype: torch.dtype) -> Tensor:
    """Rounded, unless it leaves the range of the smaller format."""
    small = maps.to(dtype)
    return small if small.isfinite().all() else maps


def with_frozen_maps(batches: Batches, method: Method, config: RunConfig, display: Display) -> Batches:
    """Batches that hold the outputs of frozen stages, if the recipe wants it and the network allows it."""
    train, model = config.train, method.model
    if not train.cache_frozen:
        return batches
    if not config.model.frozen_stages:
        display.remark("train.cache_frozen has nothing to keep: model.frozen_stages is 0.")
        return batches
    if not model.begins_after_frozen:
        display.remark(
            f"The backbone {config.model.backbone} cannot begin after its frozen stages: they are computed in"
            " every iteration, as without train.cache_frozen."
        )
        return batches
    cache = FrozenCache(model, train.cache_gb * 1e9, bool(train.views), method.reads_stages, train.precision)
    return replace(batches, frozen=cache)
