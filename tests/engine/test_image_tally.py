"""Counts of single test images: they sum to the confusion matrix, whoever of several processes tests them."""

from __future__ import annotations

import numpy as np
import torch

from segue.core.classes import IGNORE
from segue.core.image_counts import read_counts
from segue.core.records import read_run
from segue.data.batches import Batch
from segue.data.batches.batch import RankSlice
from segue.engine.image_tally import ImageTally

CHANNELS = 3


def batch_of(labels: torch.Tensor, rank: RankSlice, images: int) -> Batch:
    pixels = torch.zeros(len(labels), 3, 4, 4, dtype=torch.uint8)
    return Batch(pixels, labels, [""] * len(labels), rank_slice=rank, global_size=images)


def test_counts_by_hand_and_over_processes() -> None:
    drawn = torch.Generator().manual_seed(0)
    labels = torch.randint(0, CHANNELS, (5, 4, 4), generator=drawn)
    labels[0, 0] = IGNORE
    predicted = torch.randint(0, CHANNELS, (5, 4, 4), generator=drawn)
    by_hand = np.zeros((5, 3, CHANNELS), int)
    for image in range(5):
        for truth, answer in zip(labels[image].flatten(), predicted[image].flatten(), strict=True):
            if truth != IGNORE:
                by_hand[image, 0, truth] += int(truth == answer)
                by_hand[image, 1, truth] += 1
                by_hand[image, 2, answer] += 1
    for world_size in (1, 2):
        total = torch.zeros(5, 3, CHANNELS, dtype=torch.int64)
        for rank in range(world_size):
            tally, own = ImageTally(5, CHANNELS, torch.device("cpu")), RankSlice(rank, world_size)
            for first, size in ((0, 3), (3, 2)):
                (places,) = own.places(size)
                here = slice(first + places.start, first + places.stop)
                tally.add(batch_of(labels[here], own, size), predicted[here])
            total += tally.total()
        assert (total.numpy() == by_hand).all()


def test_a_run_keeps_counts_of_its_last_step(finished) -> None:
    folder = finished("finetune")
    last = read_run(folder).steps[-1]
    counts = read_counts(folder, last.step)
    assert counts is not None and read_counts(folder, last.step - 1) is None
    hits, truth, predicted = counts.counts.sum(0)
    assert (hits == last.matrix.diagonal()).all() and len(counts.counts) == last.images["test"]
    assert (truth == last.matrix.sum(1)).all() and (predicted == last.matrix.sum(0)).all()
    assert last.kept == 0
