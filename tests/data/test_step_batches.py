"""Batches follow from (seed, step, iteration) alone, wherever they start and however many workers read."""

import multiprocessing
import os
import random
import signal
from collections import Counter
from contextlib import closing
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from segue.core.errors import UserError
from segue.data.batches import (
    Batch,
    Batches,
    FixedOrder,
    MixedOrder,
    ShuffledOrder,
    StepData,
    lost_worker_is_told,
)
from segue.data.datasets.base import Sample
from segue.data.datasets.scenes import Config, Scenes
from segue.data.transforms import test_transform as for_testing
from segue.data.transforms import train_transform

CPU = torch.device("cpu")
IDENTITY = np.arange(256, dtype=np.uint8)


def with_workers(test):
    """Workers are forked beside threads: that does not matter here."""
    return pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")(test)


def positions(batches: list[list[tuple[int, int]]]) -> list[int]:
    return [position for batch in batches for position, _ in batch]


def scenes(images: int = 7, table: np.ndarray = IDENTITY) -> StepData:
    dataset = Scenes(Config(size=32, train=20), "train")
    return StepData(dataset, range(3, 3 + images), table, train_transform(32, (0.5, 1.0)))


# Plans


@pytest.mark.parametrize(
    ("images", "batch_size", "per_epoch"), [(10, 3, 3), (9, 3, 3), (3, 3, 1), (25, 24, 1)]
)
def test_every_image_at_most_once_per_epoch(images: int, batch_size: int, per_epoch: int) -> None:
    order = ShuffledOrder(images, batch_size, epochs=2, seed=(0, 1))
    assert order.per_epoch == per_epoch and len(order) == 2 * per_epoch
    for number in range(2):
        batches = order.epoch(number)
        assert [len(batch) for batch in batches] == [batch_size] * per_epoch  # the incomplete one is dropped
        seen = positions(batches)
        assert len(set(seen)) == len(seen) and set(seen) <= set(range(images))


def test_dropped_images_differ_from_epoch_to_epoch() -> None:
    order = ShuffledOrder(10, 4, epochs=40, seed=(0,))
    left_out = [frozenset(range(10)) - set(positions(order.epoch(number))) for number in range(40)]
    assert len(set(left_out)) > 15 and frozenset.union(*left_out) == set(range(10))


@pytest.mark.parametrize("images", [2, 5])
def test_fewer_images_than_a_batch_make_one_small_batch(images: int) -> None:
    order = ShuffledOrder(images, 8, epochs=3, seed=(0,))
    assert len(order) == 3 and [len(batch) for batch in order.batches()] == [images] * 3
    assert all(sorted(positions([batch])) == list(range(images)) for batch in order.batches())


def test_epochs_seeds_and_steps_differ() -> None:
    order = ShuffledOrder(20, 5, epochs=3, seed=(42, 0))
    epochs = [order.epoch(number) for number in range(3)]
    orders = [tuple(positions(epoch)) for epoch in epochs]
    orders += [tuple(positions(ShuffledOrder(20, 5, 3, seed).epoch(0))) for seed in ((42, 1), (43, 0))]
    assert len(set(orders)) == 5
    seeds = [seed for epoch in epochs for batch in epoch for _, seed in batch]
    assert len(set(seeds)) == len(seeds)  # an image is cropped anew each time


def test_all_batches_are_the_epochs_one_after_the_other() -> None:
    order = ShuffledOrder(11, 3, epochs=4, seed=(1,))
    assert list(order.batches()) == [batch for number in range(4) for batch in order.epoch(number)]
    assert len(list(order.batches())) == len(order) == 12


def test_restart_anywhere_gives_the_same_batches() -> None:
    order = ShuffledOrder(11, 3, epochs=3, seed=(1,))
    whole = list(order.batches())
    for start in range(len(order) + 1):
        assert list(ShuffledOrder(11, 3, 3, (1,)).batches(start)) == whole[start:]


def test_longer_training_begins_with_the_shorter() -> None:
    short, long = ShuffledOrder(11, 3, 2, (1,)), ShuffledOrder(11, 3, 5, (1,))
    assert list(long.batches())[: len(short)] == list(short.batches())


@pytest.mark.parametrize(("images", "batch_size"), [(7, 3), (6, 3), (2, 8)])
def test_test_plan_takes_every_image_once_in_order(images: int, batch_size: int) -> None:
    order = FixedOrder(images, batch_size)
    batches = list(order.batches())
    assert positions(batches) == list(range(images)) and len(order) == len(batches)
    assert max(map(len, batches)) <= batch_size
    assert list(order.batches(1)) == batches[1:]


# Orders with exemplars: images 0 to n-1, then the exemplars


def both(order: MixedOrder, batches: list[list[tuple[int, int]]]) -> tuple[list[int], list[int]]:
    """Positions of images and of exemplars, the latter from 0."""
    found = positions(batches)
    return [p for p in found if p < order.images], [p - order.images for p in found if p >= order.images]


@pytest.mark.parametrize(
    ("batch_size", "share", "places"),
    [(24, 0.5, 12), (8, 0.25, 2), (10, 0.33, 3), (4, 0.01, 1), (4, 0.99, 3), (2, 0.5, 1)],
)
def test_exemplars_have_their_share_of_every_batch(batch_size: int, share: float, places: int) -> None:
    order = MixedOrder(50, 7, batch_size, share, epochs=2, seed=(0, 1))
    assert order.exemplars_per_batch == places and len(order) == 2 * (50 // (batch_size - places))
    batches = list(order.batches())
    assert len(batches) == len(order)
    for batch in batches:
        new, old = both(order, [batch])
        assert (len(new), len(old)) == (batch_size - places, places)


@pytest.mark.parametrize(("images", "memory"), [(20, 9), (23, 3), (23, 100), (4, 1)])
def test_epoch_with_exemplars_is_one_pass_over_the_images(images: int, memory: int) -> None:
    order = MixedOrder(images, memory, 8, 0.5, epochs=3, seed=(0, 1))
    for number in range(3):
        new, _ = both(order, order.epoch(number))
        assert len(set(new)) == len(new) == images - images % 4  # the incomplete batch is dropped
    seeds = [seed for batch in order.batches() for _, seed in batch]
    assert len(set(seeds)) == len(seeds)  # whatever comes again is cropped anew


@pytest.mark.parametrize("memory", [1, 3, 9, 10, 50])
def test_exemplars_are_shown_equally_often(memory: int) -> None:
    order = MixedOrder(20, memory, 8, 0.4, epochs=7, seed=(0, 1))
    _, old = both(order, list(order.batches()))
    shown = Counter(old)
    assert set(shown) <= set(range(memory)) and len(old) == 3 * len(order)
    assert len(shown) == min(memory, len(old)) and max(shown.values()) - min(shown.values()) <= 1
    passes = [tuple(old[first : first + memory]) for first in range(0, len(old) - memory + 1, memory)]
    assert all(len(set(each)) == memory for each in passes)
    if memory == 9:
        assert len(set(passes)) == len(passes) > 1, "each pass has an order of its own"


def test_too_few_images_fill_their_places_again() -> None:
    order = MixedOrder(3, 2, 16, 0.5, epochs=4, seed=(0,))
    assert order.per_epoch == 1 and len(order) == 4
    for batch in order.batches():
        new, old = both(order, [batch])
        assert sorted(Counter(new).values()) == [2, 3, 3] and sorted(Counter(old).values()) == [4, 4]
        assert len({seed for _, seed in batch}) == 16


@pytest.mark.parametrize(("images", "memory", "share"), [(11, 5, 0.5), (11, 2, 0.7), (2, 30, 0.3)])
def test_restart_anywhere_gives_the_same_mixed_batches(images: int, memory: int, share: float) -> None:
    whole = list(MixedOrder(images, memory, 6, share, 4, (1, 2)).batches())
    for start in range(len(whole) + 1):
        assert list(MixedOrder(images, memory, 6, share, 4, (1, 2)).batches(start)) == whole[start:]


def test_mixed_batches_follow_from_seed_and_step() -> None:
    orders = [MixedOrder(20, 9, 8, 0.5, 2, seed) for seed in ((42, 1), (42, 2), (43, 1))]
    orders = [both(order, list(order.batches())) for order in orders]
    assert len({tuple(new) for new, _ in orders}) == len({tuple(old) for _, old in orders}) == 3


@pytest.mark.parametrize(("share", "parts"), [(0.5, 2), (0.5, 4), (0.25, 2)])
def test_parts_of_a_mixed_batch_have_their_share(share: float, parts: int) -> None:
    order = MixedOrder(20, 9, 8, share, 1, (0,))
    for batch in order.batches():
        size = 8 // parts
        chunks = [batch[first : first + size] for first in range(0, 8, size)]
        assert {len(both(order, [chunk])[1]) for chunk in chunks} == {round(share * size)}


# Items


def test_items_are_relabelled_images_of_the_step() -> None:
    table = np.full(256, 9, dtype=np.uint8)
    table[0] = 0
    data = scenes(table=table)
    assert len(data) == 7
    image, labels, key = data[2, 123]
    assert key == "train-00005" and image.shape == (3, 32, 32)
    assert labels.dtype == torch.uint8 and set(labels.unique().tolist()) <= {0, 9}
    plain = scenes()[2, 123]
    assert torch.equal(labels, torch.from_numpy(table)[plain[1].long()]) and torch.equal(image, plain[0])


def test_each_item_may_have_labels_of_its_own() -> None:
    tables = np.zeros((7, 256), dtype=np.uint8)
    tables[:, 1:] = np.arange(1, 8)[:, None]
    data = scenes(table=tables)
    for position in range(7):
        plain = scenes()[position, 5]
        assert plain[1].any(), "something is to be seen"
        expected = torch.from_numpy(tables[position])[plain[1].long()]
        assert torch.equal(data[position, 5][1], expected)


def test_item_depends_on_its_seed_alone() -> None:
    data = scenes()
    first = data[4, 99]
    torch.rand(5)
    data[1, 7]
    assert all(torch.equal(a, b) for a, b in zip(first[:2], data[4, 99][:2], strict=True))
    assert not torch.equal(first[0], data[4, 100][0])


def test_image_and_mask_of_two_sizes_are_refused() -> None:
    data = scenes()
    data.dataset.read = lambda _: Sample("odd one", np.zeros((4, 5, 3), np.uint8), np.zeros((5, 4), np.uint8))
    with pytest.raises(UserError, match="odd one"):
        data[0, 0]


# Batches


def equal(a: Batch, b: Batch) -> bool:
    return torch.equal(a.images, b.images) and torch.equal(a.labels, b.labels) and a.keys == b.keys


def test_batch_is_uint8_images_and_int64_labels() -> None:
    batches = Batches(scenes(), ShuffledOrder(7, 3, 2, (0,)), CPU)
    assert len(batches) == 4
    for batch in batches:
        assert batch.images.dtype == torch.uint8 and batch.images.shape == (3, 3, 32, 32)
        assert batch.labels.dtype == torch.int64 and batch.labels.shape == (3, 32, 32)
        assert len(batch.keys) == len(batch) == 3


@with_workers
def test_workers_change_nothing() -> None:
    order = ShuffledOrder(7, 2, 3, (5, 1))
    alone = list(Batches(scenes(), order, CPU))
    shared = list(Batches(scenes(), order, CPU, workers=2))
    assert len(alone) == len(shared) == 9
    assert all(equal(a, b) for a, b in zip(alone, shared, strict=True))
    late = list(Batches(scenes(), order, CPU, workers=2, start=5))
    assert len(late) == 4 and all(equal(a, b) for a, b in zip(alone[5:], late, strict=True))
    assert not any(equal(a, b) for a, b in pairwise(alone))


def test_batches_can_be_gone_through_again() -> None:
    batches = Batches(scenes(), ShuffledOrder(7, 3, 1, (0,)), CPU)
    assert all(equal(a, b) for a, b in zip(batches, batches, strict=True))


def test_test_batches_are_the_images_in_order() -> None:
    data = scenes()
    data.transform = for_testing(32)
    batches = list(Batches(data, FixedOrder(7, 3), CPU))
    assert [key for batch in batches for key in batch.keys] == [f"train-{i:05d}" for i in range(3, 10)]
    expected = data.dataset.read(5)
    assert np.array_equal(batches[0].images[2].permute(1, 2, 0).numpy(), expected.image)
    assert np.array_equal(batches[0].labels[2].numpy(), expected.mask)


@with_workers
@pytest.mark.parametrize("workers", [0, 2])
def test_reading_leaves_all_random_numbers_alone(workers: int) -> None:
    """Otherwise a resumed run, which reads fewer batches, would train on with other random numbers."""
    torch.manual_seed(3)
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    batches = iter(Batches(scenes(), ShuffledOrder(7, 3, 2, (0,)), CPU, workers))
    next(batches)
    assert torch.equal(torch.get_rng_state(), before[0])
    list(batches)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1]) and random.getstate() == before[2]


def test_random_numbers_are_left_alone_by_a_failing_item() -> None:
    data = scenes()

    def fail(*_: object) -> None:
        torch.rand(1)
        raise RuntimeError("transform")

    data.transform = fail
    before = torch.get_rng_state()
    with pytest.raises(RuntimeError, match="transform"):
        data[0, 0]
    assert torch.equal(torch.get_rng_state(), before)


# Splitting


@pytest.mark.parametrize(
    ("size", "parts", "sizes"), [(6, 1, [6]), (6, 2, [3, 3]), (5, 2, [3, 2]), (2, 4, [1, 1])]
)
def test_split_gives_the_batch_in_parts(size: int, parts: int, sizes: list[int]) -> None:
    images = torch.arange(size * 12).view(size, 3, 2, 2)
    labels = torch.arange(size * 4).view(size, 2, 2)
    batch = Batch(images, labels, [f"image {i}" for i in range(size)])
    split = batch.split(parts)
    assert [len(part) for part in split] == sizes
    assert torch.equal(torch.cat([part.images for part in split]), images)
    assert torch.equal(torch.cat([part.labels for part in split]), labels)
    assert [key for part in split for key in part.keys] == batch.keys
    assert all(len(part.keys) == len(part) == len(part.labels) for part in split)


def test_to_device_makes_labels_int64() -> None:
    batch = Batch(
        torch.zeros(1, 3, 2, 2, dtype=torch.uint8), torch.full((1, 2, 2), 255, dtype=torch.uint8), ["a"]
    )
    moved = batch.to(CPU)
    assert moved.images.dtype == torch.uint8 and moved.labels.dtype == torch.int64 and moved.keys == ["a"]
    assert (moved.labels == 255).all()


@with_workers
def test_workers_end_with_their_iterator() -> None:
    """They ignore signals: one that is left over would keep the whole process from ending."""
    source = iter(Batches(scenes(), FixedOrder(7, 2), CPU, workers=1))
    next(source)
    (worker,) = multiprocessing.active_children()
    source.close()
    worker.join(5)
    assert not worker.is_alive()


@with_workers
def test_workers_end_when_a_picture_is_bad() -> None:
    """Also while somebody still holds the error, and with it all that was going on."""
    data = scenes()
    data.dataset.read = lambda _: (_ for _ in ()).throw(UserError("spoilt"))
    with pytest.raises(UserError, match="spoilt") as held:
        list(Batches(data, FixedOrder(7, 2), CPU, workers=1))
    assert held.value is not None and not multiprocessing.active_children()


# torch raises in a signal handler when a worker is gone, maybe while a socket is open
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@with_workers
def test_worker_that_is_killed_is_a_sentence() -> None:
    """As the system does when memory runs out."""
    data = scenes()
    data.dataset.read = lambda _: os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(UserError, match=r"train\.workers"), lost_worker_is_told():
        list(Batches(data, FixedOrder(7, 2), CPU, workers=1))
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("error", [ConnectionResetError("reset by peer"), BrokenPipeError(), EOFError()])
def test_worker_that_is_killed_while_it_hands_over(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Batches, slices: object) -> object:
        raise error
        yield

    monkeypatch.setattr(Batches, "_read", broken)
    batches = Batches(scenes(), ShuffledOrder(7, 2, 1, (0, 0)), CPU, workers=1)
    with pytest.raises(UserError, match=r"was killed.*train\.workers"):
        next(iter(batches))
    with pytest.raises(type(error)):  # nobody was killed
        next(iter(replace(batches, workers=0)))


def test_error_of_a_living_worker_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def caught(self: Batches, slices: object) -> object:
        raise EOFError("Caught EOFError in DataLoader worker process 0.")  # as torch hands it on
        yield

    monkeypatch.setattr(Batches, "_read", caught)
    with pytest.raises(EOFError):
        next(iter(Batches(scenes(), FixedOrder(7, 2), CPU, workers=1)))


@with_workers
def test_no_more_workers_than_batches() -> None:
    """And no word of torch on their number, which may be larger than that of the cores."""
    with closing(iter(Batches(scenes(), FixedOrder(7, 2), CPU, workers=9))) as batches:
        next(batches)
        assert len(multiprocessing.active_children()) == 4


def test_images_of_earlier_steps_are_marked_in_each_micro_batch() -> None:
    order = MixedOrder(5, 2, 4, 0.5, epochs=2, seed=(0,))
    for batch, pairs in zip(Batches(scenes(7), order, CPU), order.batches(), strict=True):
        earlier = [position >= 5 for position, _ in pairs]
        assert batch.earlier is not None and batch.earlier.tolist() == earlier
        parts = [part.earlier for part in batch.split(2)]
        assert torch.cat(parts).tolist() == earlier
    alone = Batches(scenes(7), ShuffledOrder(7, 4, 1, (0,)), CPU)
    assert all(batch.earlier is None for batch in alone)
