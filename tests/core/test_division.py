"""Mode divided: assignments worked out by hand with 120 (1 - given / images) + total / images."""

import numpy as np
import pytest

from segue.core.classes import ClassTable
from segue.core.division import divide
from segue.core.errors import UserError
from segue.core.scenario import Scenario, class_order, make_scenario

ABC = ClassTable("abc", {1: "a", 2: "b", 3: "c"})


def presence(*images: set[int]) -> np.ndarray:
    present = np.zeros((len(images), 256), dtype=bool)
    for row, ids in zip(present, images, strict=True):
        row[list(ids)] = True
    return present


# 3 images with a, 1 with b, 3 with c. Visited: 0, 1, 5 (a), 2 (b), 3 (c).
# 1: a = 120 * 2/3 + 6/3 = 82, c = 120 + 6/3 = 122: c. 5: a = 82, c = 120 * 2/3 + 6/3 = 82: the lower id, a.
SMALL = presence({0, 1}, {1, 3, 255}, {2}, {3}, {0, 255}, {1, 3})


def test_scores_and_ties():
    assert divide(SMALL, [[1, 2], [3]]).tolist() == [0, 1, 0, 1, -1, 0]


def test_ties_go_to_the_lower_id_whatever_the_order_of_arrival():
    assert divide(SMALL, [[3], [2, 1]]).tolist() == [1, 0, 1, 0, -1, 1]
    assert divide(presence({1, 2}), [[2], [1]]).tolist() == [1]


def test_rare_class_wins():
    """Image 0: a = 120 + 4/3, b = 120 + 4."""
    assert divide(presence({1, 2}, {1}, {1}), [[1], [2]]).tolist() == [1, 0, 0]


@pytest.mark.parametrize(("common", "step"), [(120, 1), (121, 0)])
def test_weight_of_need_against_rarity(common, step):
    """Image 1: a = 120 * 1/2 + (2 + common) / 2, b = 120 + (2 + common) / common: 121 against 121.02, then
    121.5 against 121.02."""
    present = presence({1}, {1, 2}, *[{2}] * (common - 1))
    assert divide(present, [[1], [2]]).tolist() == [0, step] + [1] * (common - 1)


def test_images_are_visited_by_their_lowest_class():
    """4 images with a, 3 with b. Image 1 comes first: a = 120 + 7/4, b = 120 + 7/3. After image 0, b would
    have scored 120 * 2/3 + 7/3 only, and a had won."""
    present = presence({2}, {1, 2}, {1}, {1}, {1}, {2})
    assert divide(present, [[1], [2]]).tolist() == [1, 1, 0, 0, 0, 1]


def test_every_class_of_the_winning_step_is_credited():
    """Image 0 goes to a and b. Image 1: b = 120 * 1/2 + 4/2, c = 120 + 4/2; had b not been credited, the tie
    had gone to b."""
    assert divide(presence({1, 2}, {2, 3}, {3}), [[1, 2], [3]]).tolist() == [0, 1, 1]


def test_classes_of_other_steps_are_not_credited():
    """Image 0: a = 120 + 7/3, b = 120 + 7/4: a, and b gets no credit. Image 1: a = 120 * 2/3 + 7/3,
    b = 120 + 7/4: b. Image 2: a = 120 * 2/3 + 7/3, b = 120 * 3/4 + 7/4: b again."""
    assert divide(presence({1, 2}, {1, 2}, {1, 2}, {2}), [[1], [2]]).tolist() == [0, 1, 1, 1]


def many() -> np.ndarray:
    present = np.zeros((300, 256), dtype=bool)
    present[:, 1:6] = np.random.default_rng(0).random((300, 5)) < (0.5, 0.4, 0.3, 0.2, 0.9)
    return present


def test_many_images_as_the_rule_reads():
    present, group_of = many(), {5: 0, 2: 0, 1: 1, 4: 2, 3: 2}
    images, given = present.sum(axis=0), dict.fromkeys(group_of, 0)
    expected: dict[int, int] = {}
    for class_id in range(1, 6):
        for image in np.flatnonzero(present[:, class_id]):
            if image in expected:
                continue
            shown = np.flatnonzero(present[image])
            score = {c: 120 * (1 - given[c] / images[c]) + images[shown].sum() / images[c] for c in shown}
            expected[image] = group_of[max(score, key=score.__getitem__)]
            for c in shown:
                given[c] += group_of[c] == expected[image]
    found = divide(present, [[5, 2], [1], [4, 3]])
    assert {image: group for image, group in enumerate(found.tolist()) if group >= 0} == expected


def test_classes_of_no_group_do_not_count():
    present, groups = many(), [[1, 4], [2, 3]]
    without = present.copy()
    without[:, 5] = False
    assert np.array_equal(divide(present, groups), divide(without, groups))
    assert divide(presence({5}, {5, 2}), groups).tolist() == [-1, 1]


def test_no_image_and_no_class():
    assert divide(np.zeros((0, 256), dtype=bool), [[1], [2]]).tolist() == []
    assert divide(presence({7}, set()), [[1], [2]]).tolist() == [-1, -1]


# --- in a scenario --------------------------------------------------------------------------------


def chosen(scenario: Scenario, present: np.ndarray, split: str = "train") -> list[list[int]]:
    return [scenario.select(step, present, split).tolist() for step in scenario]


def test_each_image_trains_one_step():
    scenario = make_scenario(ABC, "2-1", "divided")
    assert chosen(scenario, SMALL) == [[0, 2, 5], [1, 3]]
    assert chosen(scenario, SMALL, "test") == [[0, 1, 2, 5], [0, 1, 2, 3, 5]]
    assert chosen(make_scenario(ABC, "2-1", "divided", offline=True), SMALL) == [[0, 1, 2, 3, 5]]


def test_classes_of_no_step_take_no_image():
    assert chosen(make_scenario(ABC, "a/b", "divided"), SMALL) == [[0, 1, 5], [2]]


# 3 images with a, 1 with b, 2 with c. Image 0: a = 120 + 6/3, b = 120 + 6, c = 120 + 6/2: b. Image 1:
# a = 120 + 5/3, and c = 120 + 5/2 if image 0 went to b alone, but 120 * 1/2 + 5/2 if it went to b and c.
MERGED = presence({1, 2, 3}, {1, 3}, {1})


@pytest.mark.parametrize("split", ["1-2", [["a"], ["b", "c"]], "a/b,c"])
def test_split_with_the_images_of_a_finer_one(split):
    assert chosen(make_scenario(ABC, split, "divided"), MERGED) == [[1, 2], [0]]
    merged = make_scenario(ABC, split, "divided", divided_as={"1-2": "1-1"})
    assert merged.division == ((1,), (2,), (3,))
    assert chosen(merged, MERGED) == [[2], [0, 1]]
    assert chosen(make_scenario(ABC, "1-1", "divided"), MERGED) == [[2], [0], [1]]


def test_finer_groups_follow_the_class_order():
    scenario = make_scenario(ABC, "1-2", "divided", order=[2, 3, 1], divided_as={"1-2": "1-1"})
    assert scenario.division == ((2,), (3,), (1,))


@pytest.mark.parametrize(("split", "mode"), [("2-1", "divided"), ("a/b", "divided"), ("1-2", "overlapped")])
def test_only_the_named_split_of_all_classes_has_finer_groups(split, mode):
    assert make_scenario(ABC, split, mode, divided_as={"1-2": "1-1"}).division is None


@pytest.mark.parametrize("division", [((1, 2), (3,)), ((1,), (2,)), ((1,), (2, 3), (3,))])
def test_finer_groups_that_are_none(division):
    with pytest.raises(AssertionError, match="finer group"):
        Scenario(ABC, ((1,), (2, 3)), "divided", division=division)


@pytest.mark.parametrize("void", ["background", "ignore"])
@pytest.mark.parametrize("split", ["train", "test"])
def test_labels_are_those_of_overlapped(void, split):
    """An image may show old and future classes: both are background in training."""
    ours, theirs = (make_scenario(ABC, "1-1", mode, void) for mode in ("divided", "overlapped"))
    for step in ours:
        assert np.array_equal(ours.label_table(step, split), theirs.label_table(step, split))
    assert ours.label_table(ours[1])[[1, 2, 3]].tolist() == [0, 2, 0]


# --- named orders ---------------------------------------------------------------------------------


def test_order_with_a_name():
    assert make_scenario(ABC, "1-2", order=" x ", orders={"x": (3, 1, 2)}).groups == ((3,), (1, 2))
    with pytest.raises(UserError, match=r"'y' is no class order of abc: .* random-SEED or x\."):
        class_order(ABC, "y", {"x": (3, 1, 2)})
