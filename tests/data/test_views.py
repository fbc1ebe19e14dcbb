"""A fixed number of views per image: `train.views`."""

from __future__ import annotations

from collections import defaultdict

import pytest

from segue.data.batches import FixedViews, MixedOrder, ShuffledOrder

ORDERS = [ShuffledOrder(10, 4, 6, (1, 0)), MixedOrder(10, 3, 4, 0.5, 6, (1, 0))]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("views", [1, 2, 4])
def test_each_image_has_so_many_views_in_turn(order, views) -> None:
    viewed = FixedViews(order, views, (1, 0))
    assert (len(viewed), viewed.per_epoch) == (len(order), order.per_epoch)
    seen = defaultdict(set)
    for pairs, plain in zip(viewed.batches(), order.batches(), strict=True):
        assert [position for position, _ in pairs] == [position for position, _ in plain], "the same images"
        for position, seed in pairs:
            seen[position].add(seed)
    assert max(map(len, seen.values())) == views
    seeds = [seed for found in seen.values() for seed in found]
    assert len(set(seeds)) == len(seeds), "no two images have a view in common"


def test_views_are_the_same_from_any_iteration_on() -> None:
    viewed = FixedViews(ORDERS[0], 3, (1, 0))
    assert list(viewed.batches(5)) == list(viewed.batches())[5:]


def test_views_follow_the_seed() -> None:
    one, other = (next(FixedViews(ORDERS[0], 3, seed).batches()) for seed in ((1, 0), (1, 1)))
    assert {seed for _, seed in one}.isdisjoint(seed for _, seed in other)
