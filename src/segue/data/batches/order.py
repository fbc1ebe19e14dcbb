"""Which images make each batch of a step: a function of (seed, step, epoch) alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class ShuffledOrder:
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
class MixedOrder:
    """Every batch of a step with exemplars: all are full, and exemplars have a share of the places.

    Exemplars are the positions after the step's images. An epoch is one pass over the step's images as in
    `ShuffledOrder`, so it has more batches; images too few for their places come more than once.
    Exemplars are gone through pass after pass, whatever the epoch, so that they are shown equally often.
    """

    images: int
    exemplars: int
    batch_size: int
    exemplar_share: float
    epochs: int
    seed: tuple[int, ...]

    @property
    def exemplars_per_batch(self) -> int:
        """Exemplars in a batch; they and the step's own images have at least one place."""
        return min(max(round(self.exemplar_share * self.batch_size), 1), self.batch_size - 1)

    @property
    def per_epoch(self) -> int:
        return max(1, self.images // (self.batch_size - self.exemplars_per_batch))

    def __len__(self) -> int:
        return self.per_epoch * self.epochs

    def epoch(self, number: int) -> list[list[tuple[int, int]]]:
        fresh, kept = self.batch_size - self.exemplars_per_batch, self.exemplars_per_batch
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
        """The exemplars of one epoch, cut out of the passes over all exemplars that it touches."""
        count = self.per_epoch * self.exemplars_per_batch
        first, skipped = divmod(number * count, self.exemplars)
        passes = range(first, first + -(-(skipped + count) // self.exemplars))
        seeds = ([*self.seed, one_pass, 1] for one_pass in passes)
        pairs = [pair for seed in seeds for pair in _draw(self.exemplars, self.exemplars, seed)]
        return [(self.images + position, seed) for position, seed in pairs[skipped : skipped + count]]


@dataclass(frozen=True)
class FixedViews:
    """An order in which each image has so many views, one per epoch in turn; a view is always cropped alike.

    A view follows from (seed, image, number of the view), so what is computed of it can be kept.
    """

    order: ShuffledOrder | MixedOrder
    views: int
    seed: tuple[int, ...]

    @property
    def images(self) -> int:
        return self.order.images

    @property
    def per_epoch(self) -> int:
        return self.order.per_epoch

    def __len__(self) -> int:
        return len(self.order)

    def batches(self, start: int = 0) -> Iterator[list[tuple[int, int]]]:
        """Batches from iteration `start` to the end."""
        for iteration, pairs in enumerate(self.order.batches(start), start):
            epoch = iteration // self.per_epoch
            yield [(position, self._seed(position, (epoch + position) % self.views)) for position, _ in pairs]

    def _seed(self, position: int, view: int) -> int:
        words = np.random.SeedSequence([*self.seed, position, view, 2]).generate_state(1, dtype=np.uint64)
        return int(words[0] >> 2)


@dataclass(frozen=True)
class FixedOrder:
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
    """Both in one batch, evenly, so that each micro-batch (`Batch.split`) has some of both."""
    places = [((i + 0.5) / len(group), pair) for group in (new, old) for i, pair in enumerate(group)]
    return [pair for _, pair in sorted(places, key=lambda place: place[0])]


def _from_iteration(order: ShuffledOrder | MixedOrder, start: int) -> Iterator[list[tuple[int, int]]]:
    for number in range(start // order.per_epoch, order.epochs):
        offset = start - number * order.per_epoch
        yield from order.epoch(number)[max(offset, 0) :]
