"""Batches of a step on a device, read by workers, from any iteration on."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import tee
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from segue.core.errors import UserError
from segue.core.launch import safe_path
from segue.data.batches.batch import WHOLE, Batch, RankSlice
from segue.data.batches.order import FixedOrder, FixedViews, MixedOrder, ShuffledOrder
from segue.data.batches.step_data import StepData

FrozenMaps = Callable[[torch.Tensor, Sequence[tuple[int, int]]], tuple[torch.Tensor, ...]]
"""outputs of a network's frozen stages, of images with their positions and seeds"""

LOST_WORKER = (
    "A process that reads images was killed, most likely because memory ran out. What was saved is"
    " there: go on with the same command (for train, add --resume) and a lower train.workers."
)


@dataclass(frozen=True)
class Batches:
    """An iterable of batches on a device; each iteration starts anew at `start`.

    Of several processes each reads its `rank_slice` of all `micro_batches`; a batch of which it has nothing
    is left out. Whoever may stop early closes the iterator (`contextlib.closing`).
    """

    data: StepData
    order: ShuffledOrder | MixedOrder | FixedViews | FixedOrder
    device: torch.device
    workers: int = 0
    start: int = 0
    rank_slice: RankSlice = WHOLE
    micro_batches: int = 1
    frozen: FrozenMaps | None = None

    def __iter__(self) -> Iterator[Batch]:
        slices, again = tee(self._slices())
        source = self._read(own for _, own in slices)
        try:
            for global_size, own in again:
                try:
                    batch = next(source)
                except (ConnectionError, EOFError) as error:
                    if not self.workers or "DataLoader worker process" in str(error):  # of a living one
                        raise
                    raise UserError(LOST_WORKER) from error  # killed while it handed a batch over
                batch = self._marked(_unwrap(batch), own).to(self.device)
                if self.frozen is not None:
                    batch = replace(batch, frozen=self.frozen(batch.images, own))
                yield replace(batch, rank_slice=self.rank_slice, global_size=global_size)
        finally:
            # its workers end now: they ignore signals, so a process that exits before them waits for ever
            del source

    def _read(self, slices: Iterator[list[tuple[int, int]]]) -> Iterator[Batch | UserError]:
        """Batches as workers read them; of more workers than batches some would have nothing to read."""
        with warnings.catch_warnings(), safe_path():  # the second: where workers are not forked
            warnings.filterwarnings("ignore", "This DataLoader will create")  # more of them than cores
            return iter(
                DataLoader(
                    _ErrorsAsValues(self.data),
                    batch_sampler=slices,
                    num_workers=min(self.workers, len(self)),
                    collate_fn=_collate,
                    worker_init_fn=_quiet_worker,
                    pin_memory=self.device.type == "cuda",
                    generator=torch.Generator(),  # the loader draws a seed from it: the global one stays
                )
            )

    def _marked(self, batch: Batch, own: Sequence[tuple[int, int]]) -> Batch:
        """With a mark on images of earlier steps, if the step shows any."""
        if self.order.images == len(self.data):
            return batch
        return replace(batch, earlier=torch.tensor([position >= self.order.images for position, _ in own]))

    def _slices(self) -> Iterator[tuple[int, list[tuple[int, int]]]]:
        """Of each batch its global size and the images that this process has."""
        for pairs in self.order.batches(self.start):
            places = self.rank_slice.places(len(pairs), self.micro_batches)
            if own := [pairs[place] for micro_batch in places for place in micro_batch]:
                yield len(pairs), own

    def __len__(self) -> int:
        """Number of global batches."""
        return len(self.order) - self.start


class _ErrorsAsValues(Dataset):
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
    maps = torch.stack(salient[0]) if salient else None
    return Batch(torch.stack(images), torch.stack(labels), list(keys), maps)


@contextmanager
def lost_worker_is_told() -> Iterator[None]:
    """What torch says when a process that reads images is gone, wherever that is noticed, as a sentence."""
    try:
        yield
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        raise UserError(LOST_WORKER) from error


def _quiet_worker(_: int) -> None:
    """Signals are the main process's business: it finishes the iteration, saves, and ends its workers.

    torchrun and Slurm send SIGTERM to all processes of a run.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    torch.set_num_threads(1)
