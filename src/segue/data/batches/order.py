"""Which images make each batch of a step: a function of (seed, step, epoch) alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np


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
