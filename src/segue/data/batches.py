"""The images of one step as batches. What a batch holds follows from (seed, step, iteration) alone.

So a run may stop at any iteration and go on with the very same batches, with any number of workers and of
processes, which share every batch among them.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import tee
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

from segue.core.errors import UserError
from segue.data.datasets.base import SegDataset
from segue.data.saliency import read_map
from segue.data.transforms import apply


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
    """Images (uint8, B x 3 x H x W), canonical labels (uint8; int64 on the device) and keys."""

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
            part = self._each(lambda tensor, here=here: tensor[here])
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


class StepData(Dataset):
    """Some images of a data set, relabelled and transformed; an item is asked for as (position, seed)."""

    def __init__(
        self,
        dataset: SegDataset,
        indices: Sequence[int],
        table: np.ndarray,
        transform: v2.Transform,
        saliency: Path | None = None,
    ) -> None:
        """`table` holds 256 labels, or a row of 256 for each image; `saliency` is a folder of maps."""
        self.dataset, self.indices, self.saliency = dataset, np.asarray(indices), saliency
        self.table, self.transform = table, transform

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, item: tuple[int, int]) -> tuple[Any, ...]:
        """Image, labels and key; then what is salient, if there are maps."""
        position, seed = item
        sample = self.dataset.read(int(self.indices[position]))
        if sample.image.shape[:2] != sample.mask.shape:
            raise UserError(f"{sample.key}: image is {sample.image.shape[:2]}, mask is {sample.mask.shape}.")
        table = self.table if self.table.ndim == 1 else self.table[position]
        maps = [relabel(table, sample.mask)]
        if self.saliency is not None:
            maps.append(read_map(self.saliency, sample.key, sample.mask.shape))
        with _seeded(seed):
            image, labels, *salient = apply(self.transform, sample.image, *maps)
        return image, labels, sample.key, *(each.bool() for each in salient)


def relabel(table: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """`table[mask]` for 256 uint8 labels and a uint8 mask, in a fifth of the time."""
    return np.frombuffer(bytearray(mask).translate(table), np.uint8).reshape(mask.shape)


@dataclass(frozen=True)
class BatchPlan:
    """Every batch of a step: shuffled per epoch, an incomplete last one dropped unless it is the only one."""

    images: int
    batch_size: int
    epochs: int
    seed: tuple[int, ...]

    @property
    def per_epoch(self) -> int:
        return max(1, self.images // self.batch_size)

    def __len__(self) -> int:
        return self.per_epoch * self.epochs

    def epoch(self, number: int) -> list[list[tuple[int, int]]]:
        pairs = _draw(self.images, self.images, [*self.seed, number])
        return [pairs[b * self.batch_size : (b + 1) * self.batch_size] for b in range(self.per_epoch)]

    def batches(self, start: int = 0) -> Iterator[list[tuple[int, int]]]:
        """Batches from iteration `start` to the end."""
        return _from_iteration(self, start)


@dataclass(frozen=True)
class MixedPlan:
    """Every batch of a step with a memory: all are full, and exemplars have a share of the places.

    Exemplars are the positions after the step's images. An epoch is one pass over the step's images as in
    `BatchPlan`, so it has more batches; images too few for their places come more than once. The memory is
    gone through pass after pass, whatever the epoch, so that its images are shown equally often.
    """

    images: int
    memory: int
    batch_size: int
    share: float
    epochs: int
    seed: tuple[int, ...]

    @property
    def places(self) -> int:
        """Exemplars in a batch; both kinds have at least one place."""
        return min(max(round(self.share * self.batch_size), 1), self.batch_size - 1)

    @property
    def per_epoch(self) -> int:
        return max(1, self.images // (self.batch_size - self.places))

    def __len__(self) -> int:
        return self.per_epoch * self.epochs

    def epoch(self, number: int) -> list[list[tuple[int, int]]]:
        fresh, kept = self.batch_size - self.places, self.places
        new = _draw(self.images, max(self.images, fresh), [*self.seed, number])
        old = self._exemplars(number)
        return [
            _spread(new[b * fresh : (b + 1) * fresh], old[b * kept : (b + 1) * kept])
            for b in range(self.per_epoch)
        ]

    def batches(self, start: int = 0) -> Iterator[list[tuple[int, int]]]:
        """Batches from iteration `start` to the end."""
        return _from_iteration(self, start)

    def _exemplars(self, number: int) -> list[tuple[int, int]]:
        """Those of one epoch, cut out of the passes over the memory that it touches."""
        count = self.per_epoch * self.places
        first, skipped = divmod(number * count, self.memory)
        passes = range(first, first + -(-(skipped + count) // self.memory))
        pairs = [pair for each in passes for pair in _draw(self.memory, self.memory, [*self.seed, each, 1])]
        return [(self.images + position, seed) for position, seed in pairs[skipped : skipped + count]]


@dataclass(frozen=True)
class OrderedPlan:
    """Every image once, in order."""

    images: int
    batch_size: int

    def __len__(self) -> int:
        return -(-self.images // self.batch_size)

    def batches(self, start: int = 0) -> Iterator[list[tuple[int, int]]]:
        for first in range(start * self.batch_size, self.images, self.batch_size):
            yield [
                (position, position) for position in range(first, min(first + self.batch_size, self.images))
            ]


@dataclass(frozen=True)
class Batches:
    """An iterable of batches on a device; each iteration starts anew at `start`.

    Of several processes each reads its `share`, in all `parts` that a batch will be split into; a batch of
    which it has nothing is left out. Whoever may stop early closes the iterator (`contextlib.closing`).
    """

    data: StepData
    plan: BatchPlan | MixedPlan | OrderedPlan
    device: torch.device
    workers: int = 0
    start: int = 0
    share: Share = WHOLE
    parts: int = 1

    def __iter__(self) -> Iterator[Batch]:
        shares, again = tee(self._shares())
        loader = DataLoader(
            _Careful(self.data),
            batch_sampler=(mine for _, mine in shares),
            num_workers=self.workers,
            collate_fn=_collate,
            worker_init_fn=_quiet_worker,
            pin_memory=self.device.type == "cuda",
            generator=torch.Generator(),  # the loader draws a seed from it: the global one stays as it is
        )
        source = iter(loader)
        try:
            for images, _ in again:
                batch = _unwrap(next(source)).to(self.device)
                yield replace(batch, share=self.share, in_all=images)
        finally:
            # its workers end now: they ignore signals, so a process that exits before them waits for ever
            del source

    def _shares(self) -> Iterator[tuple[int, list[tuple[int, int]]]]:
        """The images of each batch: how many there are in all, and which of them are this process's."""
        for pairs in self.plan.batches(self.start):
            places = self.share.places(len(pairs), self.parts)
            if mine := [pairs[place] for part in places for place in part]:
                yield len(pairs), mine

    def __len__(self) -> int:
        """Batches of all processes."""
        return len(self.plan) - self.start


def _draw(images: int, count: int, seed: Sequence[int]) -> list[tuple[int, int]]:
    """`count` pairs of a position and a seed: all images in random order, then all in another, and so on."""
    generator = np.random.default_rng(seed)
    order = np.concatenate([generator.permutation(images) for _ in range(-(-count // images))])[:count]
    seeds = generator.integers(2**62, size=count)
    return [(int(position), int(seed)) for position, seed in zip(order, seeds, strict=True)]


def _spread(new: list[tuple[int, int]], old: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Both in one batch, evenly, so that parts of it (`Batch.split`) have their shares too."""
    places = [((i + 0.5) / len(group), pair) for group in (new, old) for i, pair in enumerate(group)]
    return [pair for _, pair in sorted(places, key=lambda place: place[0])]


def _from_iteration(plan: BatchPlan | MixedPlan, start: int) -> Iterator[list[tuple[int, int]]]:
    for number in range(start // plan.per_epoch, plan.epochs):
        offset = start - number * plan.per_epoch
        yield from plan.epoch(number)[max(offset, 0) :]


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed the CPU generator, from which v2 draws, and leave it as it was.

    Not `torch.manual_seed`: without CUDA it queues a call with a whole stack trace each time, which costs
    half a millisecond and is never freed.
    """
    state = torch.get_rng_state()
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(state)


class _Careful(Dataset):
    """Hands a user's error over as a value: raised in a worker, it would arrive as a traceback's text."""

    def __init__(self, data: StepData) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, item: tuple[int, int]) -> tuple[Any, ...] | UserError:
        try:
            return self.data[item]
        except UserError as error:
            return error


def _unwrap(batch: Batch | UserError) -> Batch:
    if isinstance(batch, UserError):
        raise batch
    return batch


def _collate(items: Sequence[tuple[Any, ...] | UserError]) -> Batch | UserError:
    for item in items:
        if isinstance(item, UserError):
            return item
    images, labels, keys, *salient = zip(*items, strict=True)
    return Batch(torch.stack(images), torch.stack(labels), list(keys), *map(torch.stack, salient))


def _quiet_worker(_: int) -> None:
    """Signals are the main process's business: it finishes the iteration, saves, and ends its workers.

    torchrun and Slurm send SIGTERM to all processes of a run.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    torch.set_num_threads(1)
