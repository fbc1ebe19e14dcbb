"""The images of one step as batches. What a batch holds follows from (seed, step, iteration) alone.

So a run may stop at any iteration and go on with the very same batches, with any number of workers.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

from segue.core.errors import UserError
from segue.data.datasets.base import SegDataset
from segue.data.transforms import apply


@dataclass
class Batch:
    """Images (uint8, B x 3 x H x W), canonical labels (uint8; int64 on the device) and keys."""

    images: Tensor
    labels: Tensor
    keys: list[str]

    def to(self, device: torch.device) -> Batch:
        quick = device.type == "cuda"  # from pinned memory
        images, labels = (tensor.to(device, non_blocking=quick) for tensor in (self.images, self.labels))
        return Batch(images, labels.long(), self.keys)

    def pin_memory(self) -> Batch:
        """Called by DataLoader when its batches go to CUDA."""
        return Batch(self.images.pin_memory(), self.labels.pin_memory(), self.keys)

    def split(self, parts: int) -> list[Batch]:
        """At most `parts` batches of nearly equal size."""
        chunks = zip(self.images.chunk(parts), self.labels.chunk(parts), strict=True)
        starts = np.cumsum([0, *(len(chunk) for chunk in self.images.chunk(parts))])
        return [
            Batch(images, labels, self.keys[start : start + len(images)])
            for (images, labels), start in zip(chunks, starts, strict=False)
        ]

    def __len__(self) -> int:
        return len(self.images)


class StepData(Dataset):
    """Some images of a data set, relabelled and transformed; an item is asked for as (position, seed)."""

    def __init__(
        self, dataset: SegDataset, indices: Sequence[int], table: np.ndarray, transform: v2.Transform
    ) -> None:
        self.dataset, self.indices, self.table, self.transform = (
            dataset,
            np.asarray(indices),
            table,
            transform,
        )

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, item: tuple[int, int]) -> tuple[Tensor, Tensor, str]:
        position, seed = item
        sample = self.dataset.read(int(self.indices[position]))
        if sample.image.shape[:2] != sample.mask.shape:
            raise UserError(f"{sample.key}: image is {sample.image.shape[:2]}, mask is {sample.mask.shape}.")
        with _seeded(seed):
            image, labels = apply(self.transform, sample.image, self.table[sample.mask])
        return image, labels, sample.key


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
        generator = np.random.default_rng([*self.seed, number])
        order = generator.permutation(self.images)
        seeds = generator.integers(2**62, size=self.images)
        pairs = [(int(position), int(seed)) for position, seed in zip(order, seeds, strict=True)]
        return [pairs[b * self.batch_size : (b + 1) * self.batch_size] for b in range(self.per_epoch)]

    def batches(self, start: int = 0) -> Iterator[list[tuple[int, int]]]:
        """Batches from iteration `start` to the end."""
        for number in range(start // self.per_epoch, self.epochs):
            offset = start - number * self.per_epoch
            yield from self.epoch(number)[max(offset, 0) :]


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
    """An iterable of batches on a device; each iteration starts anew at `start`."""

    data: StepData
    plan: BatchPlan | OrderedPlan
    device: torch.device
    workers: int = 0
    start: int = 0

    def __iter__(self) -> Iterator[Batch]:
        loader = DataLoader(
            _Careful(self.data),
            batch_sampler=_Sampler(self.plan, self.start),
            num_workers=self.workers,
            collate_fn=_collate,
            worker_init_fn=_quiet_worker,
            pin_memory=self.device.type == "cuda",
            generator=torch.Generator(),  # the loader draws a seed from it: the global one stays as it is
        )
        return (_unwrap(batch).to(self.device) for batch in loader)

    def __len__(self) -> int:
        return len(self.plan) - self.start


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


@dataclass(frozen=True)
class _Sampler:
    """What DataLoader asks of a batch sampler: the plan's batches, made epoch by epoch."""

    plan: BatchPlan | OrderedPlan
    start: int

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        return self.plan.batches(self.start)

    def __len__(self) -> int:
        return len(self.plan) - self.start


class _Careful(Dataset):
    """Hands a user's error over as a value: raised in a worker, it would arrive as a traceback's text."""

    def __init__(self, data: StepData) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, item: tuple[int, int]) -> tuple[Tensor, Tensor, str] | UserError:
        try:
            return self.data[item]
        except UserError as error:
            return error


def _unwrap(batch: Batch | UserError) -> Batch:
    if isinstance(batch, UserError):
        raise batch
    return batch


def _collate(items: Sequence[tuple[Tensor, Tensor, str] | UserError]) -> Batch | UserError:
    for item in items:
        if isinstance(item, UserError):
            return item
    images, labels, keys = zip(*items, strict=True)
    return Batch(torch.stack(images), torch.stack(labels), list(keys))


def _quiet_worker(_: int) -> None:
    """Ctrl-C is the main process's business: it finishes the iteration and saves."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
