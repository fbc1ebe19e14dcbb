"""Splits, image selection and label tables, all against lists written by hand."""

from typing import get_args

import numpy as np
import pytest

from segue.core.classes import IGNORE, ClassTable
from segue.core.errors import UserError
from segue.core.scenario import Mode, Scenario, class_order, make_scenario
from segue.core.splits import canonical_split


def numbered(count: int, dataset: str = "numbered") -> ClassTable:
    return ClassTable(dataset, {i: f"class{i}" for i in range(1, count + 1)})


VOC, ADE = numbered(20, "voc"), numbered(150, "ade")
ZOO = ClassTable("zoo", {1: "cat", 2: "dog", 3: "person", 4: "horse", 5: "sheep", 6: "cow"})


# --- splits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("classes", "split", "sizes"),
    [
        (VOC, "19-1", [19, 1]),
        (VOC, "15-5", [15, 5]),
        (VOC, "15-1", [15, 1, 1, 1, 1, 1]),
        (VOC, "10-1", [10] + [1] * 10),
        (VOC, "15-5s", [15, 1, 1, 1, 1, 1]),
        (VOC, "15-3", [15, 3, 2]),
        (VOC, " 10 ", [10, 10]),
        (VOC, "20-1", [20]),
        (VOC, "20-0", [20]),
        (VOC, "offline", [20]),
        (ADE, "100-50", [100, 50]),
        (ADE, "100-10", [100, 10, 10, 10, 10, 10]),
        (ADE, "50-50", [50, 50, 50]),
        (ADE, "50", [50, 50, 50]),
        (ADE, 50, [50, 50, 50]),
        (ADE, "100-5", [100] + [5] * 10),
        (ADE, "60", [60, 60, 30]),
        (VOC, "15-3-2", [15, 3, 2]),
        (VOC, "10-2-8", [10, 2, 8]),
        (VOC, "5x4", [5, 5, 5, 5]),
        (VOC, "10-1x10", [10] + [1] * 10),
    ],
)
def test_split_by_numbers(classes, split, sizes):
    scenario = make_scenario(classes, split)
    assert [len(group) for group in scenario.groups] == sizes
    assert sum(scenario.groups, ()) == classes.ids


@pytest.mark.parametrize(
    ("split", "plain"),
    [
        ("50", "50-50"),
        ("15-5s", "15-1"),
        ("100-10x5", "100-10"),
        ("15-3-2", "15-3"),
        ("15-1-1-1-1-1", "15-1"),
        ("5x4", "5-5"),
        ("10x2", "10-10"),
        ("10-2-8", "10-2-8"),
        ("5-2", "5-2"),
        ("cat,dog/person", "cat,dog/person"),
    ],
)
def test_one_split_has_one_plain_name(split, plain):
    assert canonical_split(split) == plain


@pytest.mark.parametrize(
    "split",
    [
        [[1, 2], [3]],
        [["cat", "dog"], ["person"]],
        [["cat", 2], ["3"]],
        (("cat", "dog"), ("person",)),
        "cat,dog/person",
        " cat, 2 / person",
        "1,2/3",
    ],
)
def test_split_by_classes(split):
    assert make_scenario(ZOO, split).groups == ((1, 2), (3,))


def test_one_name_is_a_split_of_one_step():
    assert make_scenario(ZOO, "sheep").groups == ((5,),)


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ("cat,dog/cat", r"'cat' \(id 1\) stands twice"),
        ([["cat"], [1]], r"'cat' \(id 1\) stands twice"),
        ("cat/hrose", "'hrose' is no class of zoo.*Did you mean 'horse'"),
        ([["cat"], [7]], r"'7' is no class of zoo \(ids 1 to 6\)"),
        ([["--5"]], "'--5' is no class of zoo"),
        ("7-1", "starts with 7 classes, but zoo has 6"),
        ("0-1", "starts with 0 classes"),
        ("4-3", "adds 3 classes, but after 4 only 2 are left"),
        ("4-0", "adds 0 classes"),
        ("5-5-5", "'5-5-5' has 15 classes in 3 steps, but zoo has 6"),
        ("3-1-1", "'3-1-1' has 5 classes"),
        ("9999x9999", "99980001 classes"),
        ("6-0-0", "Step 1 of the split has no class"),
        ("5-5-", "'5-5-' is not understood"),
        ("banana", "'banana' is not understood"),
        ("", "is not understood"),
        ("cat//dog", "Step 1 of the split has no class"),
        ([["cat"], []], "Step 1 of the split has no class"),
        ([], "at least one step"),
        (["12", "34"], "lists the classes of each step"),
        ([1, 2], "lists the classes of each step"),
    ],
)
def test_bad_split_is_refused(split, message):
    with pytest.raises(UserError, match=message):
        make_scenario(ZOO, split)


@pytest.mark.parametrize("policy", [{"mode": "overlaped"}, {"void": "ignored"}, {"future": "backgroud"}])
def test_unknown_policy_is_refused_with_the_nearest(policy):
    with pytest.raises(UserError, match=r"is no policy for .*Did you mean"):
        make_scenario(ZOO, "3-3", **policy)


def test_steps_know_old_and_new_classes():
    first, second, third = make_scenario(ZOO, "3-2")
    assert (first.new, first.old, first.first, first.num_old, first.num_channels) == (
        (1, 2, 3),
        (),
        True,
        1,
        4,
    )
    assert (second.new, second.old, second.first) == ((4, 5), (1, 2, 3), False)
    assert (third.seen, third.num_old, third.num_channels) == ((1, 2, 3, 4, 5, 6), 6, 7)


def test_scenario_is_a_sequence_of_steps():
    scenario = make_scenario(ZOO, "3-2")
    assert len(scenario) == 3
    assert [step.index for step in scenario[1:]] == [1, 2]
    assert scenario.channel_names(scenario[1]) == ("background", "cat", "dog", "person", "horse", "sheep")


def test_offline_is_one_step_of_all_classes():
    scenario = make_scenario(ZOO, "cow,cat/dog", offline=True)
    assert scenario.groups == ((6, 1), (2,))
    assert [(step.new, step.old) for step in scenario] == [((6, 1, 2), ())]
    assert len(scenario) == 1


# --- class orders ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "order",
    [[6, 5, 4, 3, 2, 1], ["cow", "sheep", "horse", 3, "2", "cat"], "cow,sheep,horse,person,dog,1"],
)
def test_class_order_by_list(order):
    assert make_scenario(ZOO, "2-3", order=order).groups == ((6, 5), (4, 3, 2), (1,))


def test_random_order_is_fixed_by_its_seed():
    assert class_order(ZOO, "random-1") == (3, 4, 6, 1, 5, 2)  # stored recipes depend on it
    assert class_order(VOC, "random-2") != class_order(VOC, "random-3")
    assert sorted(class_order(VOC, "random-2")) == list(VOC.ids)


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ([1, 2, 3, 4, 5, 6, "cat"], "'cat' stands twice in the class order"),
        ([1, 2, 3, 4], "lacks 2 classes of zoo, e.g. 'sheep'"),
        ("cat,dgo", "Did you mean 'dog'"),
        ("random-x", "'random-x' is no class order of zoo: list all classes, or say random-SEED."),
        ("", "'' is no class order"),
    ],
)
def test_bad_order_is_refused(order, message):
    with pytest.raises(UserError, match=message):
        class_order(ZOO, order)


# --- which images ---------------------------------------------------------------------------------

IMAGES = [
    {0, 1},  # 0
    {0, 2, 4},  # 1
    {0, 3, 6, 255},  # 2
    {0, 4, 255},  # 3
    {0, 4, 5},  # 4
    {0, 1, 5},  # 5
    {0, 5, 6},  # 6
    {0, 6},  # 7
    {1, 6},  # 8
    {0, 255},  # 9
    {1, 2, 3, 255},  # 10
    {0, 1, 4, 6},  # 11
]
OVERLAPPED = [[0, 1, 2, 5, 8, 10, 11], [1, 3, 4, 5, 6, 11], [2, 6, 7, 8, 11]]
DISJOINT = [[0, 10], [1, 3, 4, 5], [2, 6, 7, 8, 11]]
TESTED = [[0, 1, 2, 5, 8, 10, 11], [0, 1, 2, 3, 4, 5, 6, 8, 10, 11], [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11]]


def presence(images=IMAGES) -> np.ndarray:
    present = np.zeros((len(images), 256), dtype=bool)
    for row, ids in zip(present, images, strict=True):
        row[list(ids)] = True
    return present


def chosen(scenario: Scenario, split: str = "train") -> list[list[int]]:
    return [scenario.select(step, presence(), split).tolist() for step in scenario]


@pytest.mark.parametrize(
    ("mode", "expected"), [("overlapped", OVERLAPPED), ("disjoint", DISJOINT), ("sequential", DISJOINT)]
)
def test_train_and_test_images(mode, expected):
    scenario = make_scenario(ZOO, "3-2", mode)
    assert chosen(scenario) == expected
    assert chosen(scenario, "test") == TESTED


def test_classes_that_never_arrive_count_as_future():
    split = [[1, 2, 3], [4, 5]]
    assert chosen(make_scenario(ZOO, split, "disjoint")) == [[0, 10], [1, 3, 4, 5]]
    assert chosen(make_scenario(ZOO, split, "overlapped")) == OVERLAPPED[:2]
    assert chosen(make_scenario(ZOO, split), "test") == TESTED[:2]


@pytest.mark.parametrize("mode", get_args(Mode))
def test_offline_takes_every_image_with_a_class(mode):
    assert chosen(make_scenario(ZOO, "3-2", mode, offline=True)) == [TESTED[-1]]


# --- label tables ---------------------------------------------------------------------------------

TABLES = {
    "background": ClassTable("t", {1: "a", 2: "b", 3: "c", 4: "d"}),
    "from zero": ClassTable("t", {0: "a", 1: "b", 2: "c", 3: "d"}, background=None),
    "zero is void": ClassTable("t", {1: "a", 2: "b", 3: "c", 4: "d"}, background=None, void=(0,)),
}
MASK_IDS = [0, 1, 2, 3, 4, 255]

# Step 1 of a, b / c / d: what the mask ids 0 1 2 3 4 255 become. c is channel 3.
TRAIN_LABELS = [
    ("background", "overlapped", "background", [0, 0, 0, 3, 0, 0]),
    ("background", "overlapped", "ignore", [0, 0, 0, 3, 0, 255]),
    ("background", "disjoint", "background", [0, 0, 0, 3, 0, 0]),
    ("background", "disjoint", "ignore", [0, 0, 0, 3, 0, 255]),
    ("background", "sequential", "background", [0, 1, 2, 3, 0, 0]),
    ("background", "sequential", "ignore", [0, 1, 2, 3, 0, 255]),
    ("from zero", "overlapped", "background", [0, 0, 3, 0, 255, 0]),
    ("from zero", "overlapped", "ignore", [0, 0, 3, 0, 255, 255]),
    ("from zero", "disjoint", "background", [0, 0, 3, 0, 255, 0]),
    ("from zero", "disjoint", "ignore", [0, 0, 3, 0, 255, 255]),
    ("from zero", "sequential", "background", [1, 2, 3, 0, 255, 0]),
    ("from zero", "sequential", "ignore", [1, 2, 3, 0, 255, 255]),
    ("zero is void", "overlapped", "background", [0, 0, 0, 3, 0, 255]),
    ("zero is void", "overlapped", "ignore", [255, 0, 0, 3, 0, 255]),
    ("zero is void", "disjoint", "background", [0, 0, 0, 3, 0, 255]),
    ("zero is void", "disjoint", "ignore", [255, 0, 0, 3, 0, 255]),
    ("zero is void", "sequential", "background", [0, 1, 2, 3, 0, 255]),
    ("zero is void", "sequential", "ignore", [255, 1, 2, 3, 0, 255]),
]
TEST_LABELS = [
    ("background", "ignore", [0, 1, 2, 3, 255, 255]),
    ("background", "background", [0, 1, 2, 3, 0, 255]),
    ("from zero", "ignore", [1, 2, 3, 255, 255, 255]),
    ("from zero", "background", [1, 2, 3, 0, 255, 255]),
    ("zero is void", "ignore", [255, 1, 2, 3, 255, 255]),
    ("zero is void", "background", [255, 1, 2, 3, 0, 255]),
]


def check_table(table: np.ndarray, labels: list[int]) -> None:
    assert table.shape == (256,) and table.dtype == np.uint8
    assert table[MASK_IDS].tolist() == labels
    assert (np.delete(table, MASK_IDS) == IGNORE).all()


@pytest.mark.parametrize("future", ["ignore", "background"])
@pytest.mark.parametrize(("name", "mode", "void", "labels"), TRAIN_LABELS)
def test_train_labels(name, mode, void, labels, future):
    scenario = make_scenario(TABLES[name], "2-1", mode, void, future)
    check_table(scenario.label_table(scenario[1], "train"), labels)


@pytest.mark.parametrize("void", ["background", "ignore"])
@pytest.mark.parametrize("mode", get_args(Mode))
@pytest.mark.parametrize(("name", "future", "labels"), TEST_LABELS)
def test_test_labels(name, future, labels, mode, void):
    scenario = make_scenario(TABLES[name], "2-1", mode, void, future)
    check_table(scenario.label_table(scenario[1], "test"), labels)


def test_channels_follow_the_order_of_arrival():
    scenario = make_scenario(TABLES["background"], [[4, 2], [1]])
    check_table(scenario.label_table(scenario[0]), [0, 0, 2, 0, 1, 0])
    check_table(scenario.label_table(scenario[1]), [0, 3, 0, 0, 0, 0])
    check_table(scenario.label_table(scenario[1], "test"), [0, 3, 2, 255, 1, 255])


def slow_label(pixel: int, scenario: Scenario, step, split: str) -> int:
    """The rule of the protocol, pixel by pixel: the label is the position in [background, *old, *new]."""
    if pixel in scenario.classes.void:
        return 0 if split == "train" and scenario.void == "background" else IGNORE
    if pixel == scenario.classes.background:
        return 0
    if pixel in step.new or (pixel in step.old and (split == "test" or scenario.mode == "sequential")):
        return [None, *step.old, *step.new].index(pixel)
    return IGNORE if split == "test" and pixel not in step.old and scenario.future == "ignore" else 0


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("mode", get_args(Mode))
@pytest.mark.parametrize("policy", ["background", "ignore"])
def test_table_lookup_is_the_slow_mapping(name, mode, policy):
    classes = TABLES[name]
    mask = np.random.default_rng(0).choice(sorted(classes.known), size=(9, 7)).astype(np.uint8)
    scenario = make_scenario(classes, "2-1", mode, policy, policy, order="random-1")
    for step in scenario:
        for split in ("train", "test"):
            slow = [[slow_label(int(pixel), scenario, step, split) for pixel in row] for row in mask]
            assert scenario.label_table(step, split)[mask].tolist() == slow


def test_listed_classes_and_an_order_do_not_go_together() -> None:
    with pytest.raises(UserError, match=r"drop scenario\.order"):
        make_scenario(ZOO, [[1], [2]], order="random-1")


def test_names_that_a_split_cannot_say() -> None:
    awkward = ClassTable("odd", {1: "Größe/Maß", 2: "cat"})
    with pytest.raises(UserError, match="Names with , or / are said by their ids"):
        make_scenario(awkward, "Größe/Maß/cat")
    assert make_scenario(awkward, "1/cat").groups == ((1,), (2,))
    with pytest.raises(UserError) as plain:
        make_scenario(ClassTable("plain", {1: "dog", 2: "cat"}), "dgo/cat")
    assert "ids" not in str(plain.value).partition(")")[2]
