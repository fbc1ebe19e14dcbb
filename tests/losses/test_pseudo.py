"""Labels from the teacher: how unsure it is, the median of that by both readings, and what it labels."""

import math
from math import log

import pytest
import torch
from torch import Tensor

from segue.losses.pseudo import (
    BINS,
    LEAST_THRESHOLD,
    bin_range,
    count_uncertainty,
    pseudo_labels,
    thresholds,
    uncertainty,
)


def draw(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def draw_labels(*shape: int, high: int = 5, seed: int = 1) -> Tensor:
    labels = torch.randint(0, high, shape, generator=torch.Generator().manual_seed(seed))
    labels[0, 0] = 255
    return labels


def counts_of(*rows: dict[int, int]) -> Tensor:
    """A histogram per channel from {bin: count}."""
    counts = torch.zeros(len(rows), BINS, dtype=torch.int64)
    for channel, row in enumerate(rows):
        for where, count in row.items():
            counts[channel, where] = count
    return counts


# Uncertainty


def test_uncertainty_by_hand() -> None:
    logits = torch.tensor([1.0, 3.0]).log().view(1, 2, 1, 1)  # 1/4, 3/4
    entropy = (log(4) + 3 * log(4 / 3)) / 4
    assert uncertainty(logits, 7).item() == pytest.approx(entropy / 2 / log(2) / log(7))


@pytest.mark.parametrize(("num_old", "num_channels"), [(2, 3), (16, 17), (16, 21), (101, 151)])
def test_bound_is_met_where_all_answers_are_alike(num_old: int, num_channels: int) -> None:
    bound = 1 / (num_old * log(num_channels))
    flat = uncertainty(torch.full((1, num_old, 2, 2), 3.0), num_channels)
    torch.testing.assert_close(flat, torch.full((1, 2, 2), bound))
    values = uncertainty(draw(4, num_old, 8, 8), num_channels)
    assert values.shape == (4, 8, 8) and values.min() > 0 and values.max() < bound


def test_uncertainty_of_a_sure_teacher_is_zero() -> None:
    sure = torch.tensor([1e4, -1e4, 0.0]).view(1, 3, 1, 1)
    assert uncertainty(sure, 5).item() == 0


# Histogram


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("median", ["fixed", "official"])
def test_histogram_is_that_of_a_loop_over_background(median: str, scale: float) -> None:
    logits, labels = draw(3, 3, 6, 7, scale=scale), draw_labels(3, 6, 7, high=3)
    most = {"fixed": 1 / (3 * log(5)), "official": 1.0}[median]
    expected = [[0] * BINS for _ in range(3)]
    for b in range(3):
        for y in range(6):
            for x in range(7):
                if labels[b, y, x] == 0:
                    p = logits[b, :, y, x].softmax(0).tolist()
                    entropy = -sum(value * log(value) for value in p if value > 0)
                    unsure = entropy / 3 / log(3) / log(5)
                    expected[p.index(max(p))][min(int(unsure / most * BINS), BINS - 1)] += 1
    counts = count_uncertainty(logits, labels, 5, median)
    assert counts.tolist() == expected
    assert counts.sum() == (labels == 0).sum() > 0


def test_bins_of_the_fixed_reading_reach_as_far_as_uncertainty_does() -> None:
    """And no further; those of the official reading are nearly all empty with many classes."""
    labels = torch.zeros(1, 1, 3, dtype=torch.int64)
    flat = torch.zeros(1, 16, 1, 3)
    assert count_uncertainty(flat, labels, 21)[0, BINS - 1] == 3
    assert count_uncertainty(flat, labels, 21, "official")[0, 2] == 3  # 1 / (16 ln 21) = 0.0205


@pytest.mark.parametrize("num_old", [3, 16])
def test_threshold_is_the_median_of_the_values_up_to_a_bin(num_old: int) -> None:
    logits, labels = draw(8, num_old, 40, 40, scale=3), draw_labels(8, 40, 40, high=3)
    limits = thresholds(count_uncertainty(logits, labels, num_old + 5), num_old + 5)
    unsure, answer = uncertainty(logits, num_old + 5), logits.argmax(1)
    exact = [unsure[(labels == 0) & (answer == c)].quantile(0.5).item() for c in range(num_old)]
    assert limits.tolist() == pytest.approx(exact, abs=1.01 * bin_range(num_old, num_old + 5, "fixed") / BINS)
    assert min(exact) > LEAST_THRESHOLD


def test_histogram_without_background_is_empty() -> None:
    counts = count_uncertainty(draw(1, 3, 2, 2), torch.tensor([[[1, 2], [4, 255]]]), 5)
    assert counts.shape == (3, BINS) and counts.sum() == 0


# Thresholds


def middle(row: list[int]) -> float:
    """The median of a histogram from 0 to 1: half of all lies below it, spread evenly inside a bin."""
    half, passed = sum(row) / 2, 0
    for where, count in enumerate(row):
        if count and passed + count >= half:
            return (where + (half - passed) / count) / BINS
        passed += count
    return 0.0


def released(row: list[int]) -> float:
    """The search of the authors' code, with its running sum and its rounding."""
    total, running = sum(row), 0.0
    if total <= 0:
        return LEAST_THRESHOLD
    half = total / 2
    for number in range(BINS):
        border = number / BINS
        where = int(border * BINS)
        if running <= half <= running + row[where]:
            break
        running = round(running + border * BINS)  # whole in single precision, in which it is compared
    rest = half - running
    share = rest / row[where] if row[where] else rest * math.inf  # not a number if nothing is left
    return max(border + share / BINS, LEAST_THRESHOLD)


def draw_counts(kind: str) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    if kind == "few":
        return torch.randint(0, 3, (50, BINS), generator=generator)
    if kind == "many":
        return torch.randint(0, 10**6, (50, BINS), generator=generator)
    if kind == "low bins":  # as with many old classes: nothing above 1 / (O ln K)
        counts = torch.zeros(50, BINS, dtype=torch.int64)
        counts[:, :7] = torch.randint(0, 40_000, (50, 7), generator=generator)
        return counts
    rare = torch.rand(50, BINS, generator=generator) < 0.1
    return rare * torch.randint(1, 500, (50, BINS), generator=generator)


@pytest.mark.parametrize("kind", ["few", "many", "low bins", "rare"])
def test_fixed_reading_is_the_median(kind: str) -> None:
    counts = draw_counts(kind)
    most = 1 / (len(counts) * log(60))
    expected = [max(middle(row) * most, LEAST_THRESHOLD) for row in counts.tolist()]
    assert thresholds(counts, 60, "fixed").tolist() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("kind", ["few", "many", "low bins", "rare"])
def test_official_reading_is_the_released_search(kind: str) -> None:
    counts = draw_counts(kind)
    expected = [released(row) for row in counts.tolist()]
    assert thresholds(counts, 60, "official").tolist() == pytest.approx(expected, rel=1e-4, nan_ok=True)
    assert all(value >= LEAST_THRESHOLD or math.isnan(value) for value in expected)


def test_fixed_is_the_default_and_by_hand() -> None:
    counts = counts_of({0: 2, 5: 4, 50: 4}, {7: 3}, {3: 2, 90: 2})
    # half of 10: three quarters into bin 5; the middle of bin 7; the end of bin 3
    expected = [value / (3 * log(5)) for value in (0.0575, 0.075, 0.04)]
    assert thresholds(counts, 5).tolist() == pytest.approx(expected)


def test_official_reading_is_right_if_the_first_bin_holds_half() -> None:
    counts = counts_of({0: 8, 5: 4, 60: 2}, {0: 5, 99: 5})
    assert thresholds(counts, 5, "official").tolist() == pytest.approx([7 / 8 / 100, 0.01])
    assert [middle(row) for row in counts.tolist()] == pytest.approx([7 / 8 / 100, 0.01])


def test_official_reading_runs_off_the_end() -> None:
    """Of many pixels beyond the first bin all answers are accepted; of few hardly any."""
    counts = counts_of({where: 2000 for where in range(1, 21)}, {60: 25}, {1: 4})
    official = thresholds(counts, 5, "official").tolist()
    assert official == [math.inf, pytest.approx(LEAST_THRESHOLD), pytest.approx(0.015)]
    assert [middle(row) for row in counts.tolist()] == pytest.approx([0.11, 0.605, 0.015])


def test_official_reading_may_end_in_an_empty_bin() -> None:
    """Half of 20 is the sum of the numbers below 5: nothing over nothing, and no answer is accepted."""
    counts = counts_of({60: 20}, {})
    limits = thresholds(counts, 5, "official")
    assert math.isnan(limits[0].item()) and math.isnan(released(counts[0].tolist()))
    labels = torch.zeros(1, 1, 1, dtype=torch.int64)
    assert pseudo_labels(labels, torch.tensor([9.0, 0.0]).view(1, 2, 1, 1), limits, 5)[0].item() == 255


def test_official_reading_looks_into_the_bin_before() -> None:
    """int(29 / 100 * 100) is 28: of 29 the search sees the count of 28."""
    assert [number for number in range(BINS) if int(number / BINS * BINS) != number] == [29, 57, 58]
    # half of 832 lies past 378 + 20 of bin 28, and in the middle of 406 + 20, which is taken for bin 29
    limit = thresholds(counts_of({28: 20, 29: 812}), 5, "official")
    assert limit.item() == pytest.approx(0.29 + 10 / 20 / 100)


def test_channel_never_seen_has_the_least_threshold() -> None:
    counts = counts_of({}, {0: 10**6}, {1: 2})
    least, most = LEAST_THRESHOLD, 1 / (3 * log(5))
    assert thresholds(counts, 5, "official").tolist() == pytest.approx([least, 0.005, 0.015])
    assert thresholds(counts, 5, "fixed").tolist() == pytest.approx([least, 0.005 * most, 0.015 * most])


def test_threshold_of_a_sure_teacher_is_raised_to_the_least() -> None:
    """Of 16 channels the first bin ends at 0.0002."""
    counts = counts_of(*[{0: 50}] * 16)
    assert thresholds(counts, 21).tolist() == pytest.approx([LEAST_THRESHOLD] * 16)
    assert thresholds(counts, 21, "official").tolist() == pytest.approx([0.005] * 16)


# Labels


def sure_of(answers: list[list[int]], margin: list[list[float]]) -> Tensor:
    """Logits of 3 channels (1 x 3 x H x W) with an answer and a margin per pixel."""
    one_hot = torch.nn.functional.one_hot(torch.tensor(answers), 3).movedim(-1, 0)
    return (one_hot * torch.tensor(margin)).unsqueeze(0).float()


def test_sure_answers_become_labels_and_unsure_ones_are_ignored() -> None:
    logits = sure_of([[1, 2, 0, 1], [1, 2, 2, 2]], [[20, 20, 20, 0.1], [20, 0.1, 20, 20]])
    labels = torch.tensor([[[0, 0, 0, 0], [3, 0, 255, 4]]])
    filled, share = pseudo_labels(labels, logits, torch.full((3,), 0.01), 5)
    # background: sure, sure, sure of background, unsure, unsure; new classes and void stay
    assert filled.tolist() == [[[1, 2, 0, 255], [3, 255, 255, 4]]]
    assert share.tolist() == pytest.approx([3 / 5], abs=1e-6)


def test_every_channel_has_its_own_threshold() -> None:
    logits = sure_of([[0, 1, 2]], [[1.0, 1.0, 1.0]])
    unsure = uncertainty(logits, 5)[0, 0, 0].item()
    limits = torch.tensor([unsure * 1.01, unsure * 0.99, unsure * 1.01])
    filled, share = pseudo_labels(torch.zeros(1, 1, 3, dtype=torch.uint8), logits, limits, 5)
    assert filled.tolist() == [[[0, 255, 2]]] and share.item() == pytest.approx(2 / 3)


def test_threshold_itself_is_not_sure_enough_and_infinity_takes_all() -> None:
    logits, labels = sure_of([[1, 1]], [[1.0, 0.0]]), torch.zeros(1, 1, 2, dtype=torch.int64)
    exact = uncertainty(logits, 5)[0, 0, 0].expand(3)
    assert pseudo_labels(labels, logits, exact, 5)[0].tolist() == [[[255, 255]]]
    assert pseudo_labels(labels, logits, torch.full((3,), math.inf), 5)[0].tolist() == [[[1, 0]]]


def test_labels_of_old_classes_count_as_background() -> None:
    logits = sure_of([[2, 2, 2]], [[20, 20, 20]])
    filled, share = pseudo_labels(torch.tensor([[[1, 2, 3]]]), logits, torch.full((3,), 0.01), 5)
    assert filled.tolist() == [[[2, 2, 3]]] and share.item() == pytest.approx(1)


def test_share_is_of_an_images_own_background_and_within_0_and_1() -> None:
    logits, labels = draw(8, 3, 9, 9, scale=3), draw_labels(8, 9, 9)
    limits = torch.full((3,), 0.08)
    kept_labels = labels.clone()
    filled, share = pseudo_labels(labels, logits, limits, 5)
    assert torch.equal(labels, kept_labels)
    assert share.min() > 0 and share.max() < 1 and share.unique().numel() > 1
    for image in range(8):
        alone = pseudo_labels(labels[image : image + 1], logits[image : image + 1], limits, 5)
        assert torch.equal(alone[0][0], filled[image]) and torch.equal(alone[1][0], share[image])
        background = labels[image] < 3
        kept = (filled[image] != 255) & background
        assert share[image].item() == pytest.approx((kept.sum() / background.sum()).item(), abs=1e-6)
    untouched = labels >= 3
    assert torch.equal(filled[untouched], labels[untouched])


@pytest.mark.parametrize("label", [3, 255])
def test_image_without_background_has_a_share_of_zero(label: int) -> None:
    labels = torch.full((2, 2, 2), label, dtype=torch.uint8)
    filled, share = pseudo_labels(labels, draw(2, 3, 2, 2, scale=20), torch.ones(3), 5)
    assert filled.dtype == torch.int64 and torch.equal(filled, labels.long())
    assert share.tolist() == [0, 0]


def test_all_kept_is_a_share_of_one() -> None:
    share = pseudo_labels(torch.zeros(1, 64, 64, dtype=torch.int64), draw(1, 3, 64, 64), torch.ones(3), 5)[1]
    assert 1 - 1e-6 <= share.item() <= 1
