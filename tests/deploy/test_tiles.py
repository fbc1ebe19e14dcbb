"""Tiles: they cover an image, their weights add up to one, and a network of bounded reach sees no seams."""

from __future__ import annotations

import numpy as np
import pytest

from segue.deploy.predictor import answer_from, most_probable, resized_rows, softmax
from segue.deploy.tiles import GRID, blend_tiles, overlap_of, plan_side, tile_length

LENGTHS = [1, 31, 64, 65, 96, 127, 128, 129, 200, 513, 1000]


@pytest.mark.parametrize("tile", [64, 128, 256])
@pytest.mark.parametrize("length", LENGTHS)
def test_tiles_cover_a_side_and_their_weights_add_up_to_one(length, tile):
    side = plan_side(length, tile)
    total = np.zeros(length)
    for place, weight in zip(*side, strict=True):
        assert place.start % GRID == 0
        assert length <= tile or tile - GRID < place.stop - place.start <= tile
        total[place] += weight
    assert np.allclose(total, 1, atol=1e-6)
    assert side.places[0].start == 0 and side.places[-1].stop == length
    for earlier, later in zip(side.places, side.places[1:], strict=False):
        assert earlier.stop - later.start >= overlap_of(tile) and earlier.stop <= later.stop


def test_tile_lengths_are_on_the_grid():
    assert [tile_length(asked) for asked in (1, 64, 65, 512, 1000)] == [64, 64, 96, 512, 1024]


def bounded(reach: int):
    """A network of three channels that looks `reach` pixels far: sums of whole numbers, all of it exact."""

    def probabilities(images):
        grey = images.astype(np.int64).sum(3)
        padded = np.pad(grey, ((0, 0), (reach, reach), (reach, reach)))
        height, width = grey.shape[1:]
        sums = sum(
            padded[:, dy : dy + height, dx : dx + width] * (1 + (dy * 7 + dx * 3) % 5)
            for dy in range(0, 2 * reach + 1, reach or 1)
            for dx in range(0, 2 * reach + 1, reach or 1)
        )
        return np.stack([(sums + 5 * channel) % 16 for channel in range(3)], axis=1).astype(np.float32)

    return probabilities


@pytest.mark.parametrize("size", [(64, 64), (70, 300), (301, 129), (260, 250)])
@pytest.mark.parametrize("batch", [1, 3])
def test_tiles_equal_the_whole_image_for_a_network_that_looks_no_farther_than_their_margin(size, batch):
    tile = 128
    reach = overlap_of(tile) // 4
    pixels = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    network = bounded(reach)
    whole = network(pixels[None])[0]
    ids, best = most_probable(whole)
    strips = list(blend_tiles(lambda top, bottom: pixels[top:bottom], size, network, tile, batch))
    found = np.concatenate([strip.ids for strip in strips])
    gap = np.sort(whole, axis=0)
    clear = gap[-1] > gap[-2]  # equal scores are told apart by rounding alone
    assert found.dtype == np.uint8 and clear.mean() > 0.5 and np.array_equal(found[clear], ids[clear])
    assert np.allclose(np.concatenate([strip.confidence for strip in strips]), best, atol=1e-4)
    assert np.array_equal(np.concatenate([strip.pixels for strip in strips]), pixels)
    assert [strip.top for strip in strips] == list(
        np.cumsum([0, *map(lambda one: len(one.ids), strips)])[:-1]
    )


def test_a_network_that_looks_farther_sees_the_tiles():
    """The comparison above can fail."""
    size, tile = (64, 300), 128
    pixels = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    network = bounded(40)
    strips = blend_tiles(lambda top, bottom: pixels[top:bottom], size, network, tile, 2)
    found = np.concatenate([strip.confidence for strip in strips])
    assert not np.allclose(found, network(pixels[None])[0].max(0), atol=1e-4)


def test_only_a_band_of_the_image_is_asked_for_at_a_time():
    asked = []

    def rows(top, bottom):
        asked.append((top, bottom))
        return np.zeros((bottom - top, 100, 3), dtype=np.uint8)

    even = lambda images: np.full((len(images), 2, *images.shape[1:3]), 0.5, dtype=np.float32)  # noqa: E731
    for strip in blend_tiles(rows, (1000, 100), even, 128, 4):
        assert len(strip.ids) <= 128
    assert max(bottom - top for top, bottom in asked) == 128 and asked[-1][1] == 1000


def test_numpy_upsampling_is_that_of_torch():
    import torch

    scores = np.random.default_rng(0).normal(size=(3, 7, 9))
    wanted = torch.nn.functional.interpolate(
        torch.from_numpy(scores)[None], size=(40, 31), mode="bilinear", align_corners=False
    )[0].numpy()
    assert np.allclose(resized_rows(scores, (40, 31), slice(5, 12)), wanted[:, 5:12], atol=1e-6)
    answer = answer_from(scores, (40, 31), logits=True)
    assert np.array_equal(answer.ids, wanted.argmax(0))
    assert np.allclose(answer.confidence, softmax(wanted[None])[0].max(0), atol=1e-6)


def test_strips_of_scores_change_nothing(monkeypatch):
    scores = np.random.default_rng(1).normal(size=(4, 5, 6)).astype(np.float32)
    whole = answer_from(scores, (50, 60))
    monkeypatch.setattr("segue.deploy.predictor.STRIP_NUMBERS", 4 * 60 * 7)
    parts = answer_from(scores, (50, 60))
    assert np.array_equal(whole.ids, parts.ids) and np.array_equal(whole.confidence, parts.confidence)
