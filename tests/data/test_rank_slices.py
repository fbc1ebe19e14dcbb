"""Processes share every batch: together they have what one process has, part by part."""

from collections.abc import Iterable

import pytest
import torch
from test_step_batches import CPU, scenes

from segue.data.batches import Batch, Batches, FixedOrder, MixedOrder, RankSlice, ShuffledOrder


@pytest.mark.parametrize("images", [1, 2, 7, 24])
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("processes", [1, 2, 8])
def test_shares_are_the_parts_of_one_process(images: int, parts: int, processes: int) -> None:
    whole = RankSlice().places(images, parts)
    shares = [RankSlice(process, processes).places(images, parts) for process in range(processes)]
    assert [place for part in whole for place in part] == list(range(images)) and len(whole) <= parts
    for number, part in enumerate(whole):
        own = [share[number] for share in shares]
        assert [place for places in own for place in places] == list(part)
        assert max(map(len, own)) - min(map(len, own)) <= 1
        assert len(own[0]) == max(map(len, own)), "the first one has something of every batch"


def keys(batches: Iterable[Batch]) -> list[str]:
    return [key for batch in batches for key in batch.keys]


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize(
    "order", [ShuffledOrder(7, 5, 2, (3,)), ShuffledOrder(4, 8, 3, (3,)), MixedOrder(5, 2, 4, 0.5, 2, (3,))]
)
def test_global_batches_do_not_depend_on_the_number_of_processes(order, parts: int) -> None:
    alone = list(Batches(scenes(), order, CPU, start=1))
    shared = [list(Batches(scenes(), order, CPU, 0, 1, RankSlice(i, 2), parts)) for i in range(2)]
    assert len(alone) == len(shared[0]) == len(shared[1]) == len(order) - 1
    for whole, *mine in zip(alone, *shared, strict=True):
        assert {batch.global_size for batch in mine} == {whole.global_size} == {len(whole)}
        together = zip(*(batch.split(parts) for batch in mine), strict=True)
        for part, pair in zip(whole.split(parts), together, strict=True):
            assert keys(pair) == part.keys
            assert torch.equal(torch.cat([each.images for each in pair]), part.images), "augmented alike"
            assert torch.equal(torch.cat([each.labels for each in pair]), part.labels)
            assert part.global_size == len(part)


@pytest.mark.parametrize("processes", [2, 3, 5])
def test_a_pass_shows_every_image_once(processes: int) -> None:
    order = FixedOrder(7, 3)
    shared = [
        list(Batches(scenes(), order, CPU, rank_slice=RankSlice(i, processes))) for i in range(processes)
    ]
    found = [key for batches in shared for key in keys(batches)]
    assert sorted(found) == sorted(keys(Batches(scenes(), order, CPU)))
    assert all(len(batch) for batches in shared for batch in batches), "nobody gets an empty batch"
    assert [batch.global_size for batch in shared[0]] == [3, 3, 1]
