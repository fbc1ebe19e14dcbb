"""Outputs of frozen stages, computed once and kept: `train.cache_frozen`.

A pass through the frozen stages serves student and teacher. With a fixed number of views per image
(`train.views`) it serves all epochs, too: the outputs of each view are kept in memory as float16, up to
`train.cache_gb`; those that do not fit are computed again. Either way they are computed one image at a time
and rounded alike: the numbers depend neither on the batch in which a view comes first nor on the room there
is, so that a resumed run goes on bit for bit. Each process keeps what it has seen itself.

Test images have one view, and most come in the tests of several steps: their outputs are kept for the whole
run, with as much room of their own. With `train.cache_disk_gb` other runs find all of them on disk
(engine/frozen_store.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from segue.core.config import RunConfig
from segue.core.progress import Display
from segue.data.batches import Batches
from segue.data.index import cache_folder
from segue.data.transfer import sent
from segue.engine.data import EvalData
from segue.engine.device import autocast
from segue.engine.frozen_store import FrozenStore
from segue.methods.base import Method
from segue.models.network import Network

D = TypeVar("D", bound=EvalData)


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
        self.store: FrozenStore | None = None
        """where other runs find them, too"""
        self.bytes = 0
        """bytes that are kept"""
        self.computed = 0
        """number of images that went through the frozen stages"""
        self._kept: dict[tuple[int, int], tuple[Tensor, ...]] = {}

    def __call__(self, images_B3HW: Tensor, views: Sequence[tuple[int, int]]) -> tuple[Tensor, ...]:
        if not self.views:
            return self._compute(images_B3HW)
        each = [self._of(image[None], view) for image, view in zip(images_B3HW, views, strict=True)]
        device, dtype = images_B3HW.device, self._dtype
        return tuple(sent(torch.cat(maps), device).to(dtype) for maps in zip(*each, strict=True))

    def _of(self, image_13HW: Tensor, view: tuple[int, int]) -> tuple[Tensor, ...]:
        if view in self._kept:
            return self._kept[view]
        maps = self._stored(image_13HW)
        size = sum(each.nbytes for each in maps)
        if self.bytes + size <= self.room:
            self._kept[view] = maps
            self.bytes += size
        return maps

    def _stored(self, image_13HW: Tensor) -> tuple[Tensor, ...]:
        """Rounded maps from the disk, or computed, and then kept there."""
        place = self.store.place(image_13HW) if self.store is not None else None
        if self.store is not None and place is not None and (maps := self.store.read(place)) is not None:
            return maps
        maps = tuple(_rounded(each, self.kept_as) for each in self._compute(image_13HW))
        if self.store is not None and place is not None:
            self.store.write(place, maps)
        return maps

    def _compute(self, images_B3HW: Tensor) -> tuple[Tensor, ...]:
        self.computed += len(images_B3HW)
        return self.maps(images_B3HW)

    def maps(self, images_B3HW: Tensor) -> tuple[Tensor, ...]:
        """The outputs, computed."""
        with autocast(images_B3HW.device, self.precision):
            maps = self.model.frozen_maps(images_B3HW, self.every_stage)
        self._dtype = maps[-1].dtype
        return maps


def _rounded(maps: Tensor, dtype: torch.dtype) -> Tensor:
    """Rounded and on the CPU, unless it leaves the range of the smaller format: then as it is."""
    small = maps.to(dtype).cpu()
    return small if small.isfinite().all() else maps.cpu()


def with_frozen_maps(batches: Batches, method: Method, config: RunConfig, display: Display) -> Batches:
    """Batches that hold the outputs of frozen stages, if the recipe wants it and the network allows it."""
    if not _wanted(method, config, display):
        return batches
    return replace(batches, frozen=_cache(method, config, bool(config.train.views)))


def with_test_maps(data: D, method: Method, display: Display) -> D:
    """Data whose test batches hold the outputs of frozen stages, where several steps are tested."""
    tests = len(data.scenario) - data.config.scenario.learned
    if tests < 2 or not _wanted(method, data.config, display):
        return data
    return replace(data, frozen=_cache(method, data.config, views=True))


def _cache(method: Method, config: RunConfig, views: bool) -> FrozenCache:
    train = config.train
    cache = FrozenCache(method.model, train.cache_gb * 1e9, views, method.reads_stages, train.precision)
    if views and train.cache_disk_gb:
        room, folder = train.cache_disk_gb * 1e9, cache_folder() / "frozen"
        cache.store = FrozenStore(folder, room, method.model.frozen_modules, cache.maps)
    return cache


def _wanted(method: Method, config: RunConfig, display: Display) -> bool:
    """Whether outputs of frozen stages are computed apart; the user hears why not."""
    model = method.model
    if not config.train.cache_frozen:
        return False
    if not (config.model.frozen_stages or config.model.frozen_blocks):
        display.remark("train.cache_frozen has nothing to keep: model.frozen_stages is 0.")
        return False
    if not model.begins_after_frozen:
        display.remark(
            f"The backbone {config.model.backbone} cannot begin after its frozen stages: they are computed in"
            " every iteration, as without train.cache_frozen."
        )
        return False
    return True
