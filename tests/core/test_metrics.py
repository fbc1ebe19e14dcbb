"""Scores against numbers worked out by hand."""

import math

import numpy as np
import pytest

from segue.core import metrics
from segue.core.classes import IGNORE

NAN = math.nan


def confusion_of(*tenths: int | None) -> np.ndarray:
    """A matrix in which class i has IoU tenths[i] / 10: what is missed of its 10 pixels is called background.

    Background has 100 pixels, all hit, so its IoU is 100 / (100 + all missed ones). None: no ground truth.
    """
    matrix = np.zeros((1 + len(tenths), 1 + len(tenths)), dtype=np.int64)
    matrix[0, 0] = 100
    for channel, hits in enumerate(tenths, start=1):
        if hits is not None:
            matrix[channel, channel], matrix[channel, 0] = hits, 10 - hits
    return matrix


# groups of 2, 1 and 1 classes
RUN = [confusion_of(8, 6), confusion_of(6, 7, 9), confusion_of(5, 3, 4, 6)]
JOINT = confusion_of(8, 8, 8, 6)


def test_iou_of_three_channels_with_void():
    truth = [0, 0, 1, 1, 1, 2, 2, IGNORE, IGNORE]
    predicted = [0, 1, 1, 1, 2, 2, 0, 2, 1]
    confusion = np.zeros((3, 3), dtype=np.int64)
    for t, p in zip(truth, predicted, strict=True):
        if t != IGNORE:
            confusion[t, p] += 1
    assert confusion.tolist() == [[1, 1, 0], [0, 2, 1], [1, 0, 1]]
    assert metrics.iou(confusion).tolist() == pytest.approx([1 / 3, 2 / 4, 1 / 3])


@pytest.mark.parametrize("false_alarms", [0, 5])
def test_class_without_ground_truth_is_nan_and_left_out(false_alarms):
    confusion = confusion_of(8, None, 6)
    confusion[0, 2] = false_alarms
    per_class = metrics.iou(confusion)
    assert np.isnan(per_class).tolist() == [False, False, True, False]
    assert metrics.mean(per_class[1:]) == pytest.approx(0.7)
    assert metrics.step_scores(confusion, num_first=2).old == pytest.approx(0.8)


def test_background_without_ground_truth_costs_recall_only():
    confusion = confusion_of(8, 6)
    confusion[0, 0] = 0  # ADE20K: nothing is labelled background
    scores = metrics.step_scores(confusion, num_first=1)
    assert math.isnan(scores.background)
    assert (scores.old, scores.new, scores.all) == pytest.approx((0.8, 0.6, 0.7))
    assert (scores.old_bg, scores.all_bg) == pytest.approx((0.8, 0.7))


def test_nothing_to_score_is_nan():
    assert math.isnan(metrics.mean(np.array([])))
    assert math.isnan(metrics.mean(np.array([NAN])))


def test_step_scores_with_and_without_background():
    scores = metrics.step_scores(RUN[2], num_first=2)
    background = 100 / (100 + 5 + 7 + 6 + 4)
    assert scores.background == pytest.approx(background)
    assert (scores.old, scores.new, scores.all) == pytest.approx((0.4, 0.5, 0.45))
    assert scores.old_bg == pytest.approx((background + 0.5 + 0.3) / 3)
    assert scores.all_bg == pytest.approx((background + 0.5 + 0.3 + 0.4 + 0.6) / 5)
    assert scores.h == pytest.approx(2 * 0.4 * 0.5 / 0.9)


def test_step_0_has_no_new_score():
    scores = metrics.step_scores(RUN[0], num_first=2)
    assert math.isnan(scores.new) and math.isnan(scores.h)
    assert scores.old == scores.all == pytest.approx(0.7)


@pytest.mark.parametrize(
    ("a", "b", "h"), [(0.6, 0.3, 0.4), (0.5, 0.0, 0.0), (0.0, 0.0, 0.0), (0.5, NAN, NAN)]
)
def test_harmonic_mean(a, b, h):
    assert metrics.harmonic_mean(a, b) == pytest.approx(h, nan_ok=True)
    assert metrics.harmonic_mean(b, a) == pytest.approx(h, nan_ok=True)


def test_class_history():
    expected = [[0.8, 0.6, NAN, NAN], [0.6, 0.7, 0.9, NAN], [0.5, 0.3, 0.4, 0.6]]
    np.testing.assert_allclose(metrics.class_history(RUN), expected)


def test_average_over_steps():
    assert metrics.average_over_steps(RUN) == pytest.approx((1.4 / 2 + 2.2 / 3 + 1.8 / 4) / 3)
    with_background = [(100 / 106 + 1.4) / 3, (100 / 108 + 2.2) / 4, (100 / 122 + 1.8) / 5]
    assert metrics.average_over_steps(RUN, background=True) == pytest.approx(sum(with_background) / 3)


def test_forgetting_counts_from_the_best_step():
    assert metrics.forgetting(RUN) == pytest.approx(((0.8 - 0.5) + (0.7 - 0.3) + (0.9 - 0.4)) / 3)


def test_backward_transfer_counts_from_the_step_of_learning():
    assert metrics.backward_transfer(RUN) == pytest.approx(((0.5 - 0.8) + (0.3 - 0.6) + (0.4 - 0.9)) / 3)


def test_classes_without_ground_truth_do_not_count_as_forgotten():
    run = [confusion_of(8, None), confusion_of(6, None, 9)]
    assert metrics.forgetting(run) == pytest.approx(0.2)
    assert metrics.backward_transfer(run) == pytest.approx(-0.2)


def test_run_scores():
    scores = metrics.run_scores(RUN, num_first=2, joint=JOINT)
    assert scores.final == metrics.step_scores(RUN[2], 2)
    assert scores.average == metrics.average_over_steps(RUN)
    assert scores.average_bg == metrics.average_over_steps(RUN, background=True)
    assert scores.forgetting == metrics.forgetting(RUN)
    assert scores.backward_transfer == metrics.backward_transfer(RUN)
    assert scores.stability == pytest.approx(0.4 / 0.7)
    assert scores.plasticity == pytest.approx(0.5 / 0.7)
    assert scores.gap_to_joint == pytest.approx(0.75 - 0.45)


def test_scores_that_need_joint_or_a_second_step_are_nan_without():
    scores = metrics.run_scores(RUN[:1], num_first=2)
    assert scores.stability == 1
    undefined = (scores.forgetting, scores.backward_transfer, scores.plasticity, scores.gap_to_joint)
    assert all(math.isnan(score) for score in undefined)


def test_ratio_to_nothing_is_nan():
    scores = metrics.run_scores([confusion_of(0), confusion_of(5, 5)], num_first=1, joint=confusion_of(5, 0))
    assert math.isnan(scores.stability) and math.isnan(scores.plasticity)


def test_group_means_are_those_of_the_classes_of_each_step():
    assert metrics.group_means(RUN[2], [2, 1, 1]) == pytest.approx([0.4, 0.4, 0.6])
    assert metrics.group_means(confusion_of(8, None, 2), [2, 1]) == pytest.approx([0.8, 0.2])


def test_classes_that_a_step_has_not_learned_have_no_group_mean():
    first, second, third = metrics.group_means(RUN[0], [2, 1, 1])
    assert first == pytest.approx(0.7) and math.isnan(second) and math.isnan(third)
