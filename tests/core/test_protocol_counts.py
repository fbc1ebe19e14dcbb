"""Image counts of the benchmark protocol, from the class lists of the real data sets.

The folder named by SEGUE_PROTOCOL_DATA holds one line `id class class ...` per image, class ids from 1.
"""

import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from segue.core.classes import ClassTable
from segue.core.scenario import make_scenario
from segue.data.datasets.ade20k import Ade20k
from segue.data.datasets.voc import Voc

pytestmark = pytest.mark.data

VOC, ADE = Voc.classes, Ade20k.classes

VOC_DISJOINT = {
    "19-1": [10034, 548],
    "15-5": [8437, 2145],
    "15-1": [8437, 378, 299, 420, 500, 548],
    "10-1": [3706, 188, 868, 227, 201, 3247, 378, 299, 420, 500, 548],
}
VOC_OVERLAPPED = {
    "19-1": [10410, 548],
    "15-5": [9568, 2145],
    "15-1": [9568, 487, 299, 491, 500, 548],
    "10-1": [6139, 528, 1177, 444, 482, 3898, 487, 299, 491, 500, 548],
}
VOC_TEST = {"19-1": [1421, 1449], "15-5": [1240, 1449], "15-1": [1240, 1277, 1329, 1353, 1421, 1449]}
ADE_OVERLAPPED = {
    "100-50": [20192, 9390],
    "100-10": [20192, 1710, 2294, 2747, 4279, 2844],
    "50-50": [20177, 13186, 9390],
}
ADE_DIVIDED = {
    ("a", "100-50"): [13452, 6744],
    ("a", "100-10"): [13452, 1130, 1200, 1366, 1550, 1498],
    ("a", "50-50"): [8219, 6384, 5593],
    ("b", "100-50"): [10375, 9821],
    ("b", "100-10"): [10375, 1362, 1346, 2084, 2609, 2420],
    ("b", "50-50"): [6659, 7483, 6054],
}
ADE_TEST = {"100-50": [2000] * 2, "100-10": [2000] * 6, "50-50": [1997, 2000, 2000]}


@cache
def presence(name: str) -> np.ndarray:
    folder = os.environ.get("SEGUE_PROTOCOL_DATA")
    path = Path(folder or "") / name
    if not folder or not path.is_file():
        pytest.skip(f"SEGUE_PROTOCOL_DATA names no folder with {name}")
    lines = path.read_text(encoding="utf-8").splitlines()
    present = np.zeros((len(lines), 256), dtype=bool)
    for row, line in zip(present, lines, strict=True):
        row[[int(word) for word in line.split()[1:]]] = True
    return present


def counts(classes: ClassTable, split: str, mode: str, file: str, part: str = "train") -> list[int]:
    scenario = make_scenario(classes, split, mode)
    return [len(scenario.select(step, presence(file), part)) for step in scenario]


@pytest.mark.parametrize("mode", ["disjoint", "sequential"])
@pytest.mark.parametrize("split", VOC_DISJOINT)
def test_voc_disjoint(split, mode):
    assert counts(VOC, split, mode, "voc2012_train_aug.txt") == VOC_DISJOINT[split]


@pytest.mark.parametrize("split", VOC_OVERLAPPED)
def test_voc_overlapped(split):
    assert counts(VOC, split, "overlapped", "voc2012_train_aug.txt") == VOC_OVERLAPPED[split]


@pytest.mark.parametrize("split", VOC_TEST)
def test_voc_test(split):
    assert counts(VOC, split, "overlapped", "voc2012_val.txt", "test") == VOC_TEST[split]


def test_voc_offline_takes_every_image():
    scenario = make_scenario(VOC, "15-5", offline=True)
    assert len(scenario.select(scenario[0], presence("voc2012_train_aug.txt"))) == 10582


@pytest.mark.parametrize("split", ADE_OVERLAPPED)
def test_ade_overlapped(split):
    assert counts(ADE, split, "overlapped", "ade20k_train.txt") == ADE_OVERLAPPED[split]


@pytest.mark.parametrize("split", ADE_TEST)
def test_ade_test(split):
    assert counts(ADE, split, "overlapped", "ade20k_val.txt", "test") == ADE_TEST[split]


@pytest.mark.parametrize(("order", "split"), ADE_DIVIDED)
def test_ade_divided(order, split):
    scenario = make_scenario(
        ADE, split, "divided", order=order, orders=Ade20k.orders, divided_as=Ade20k.divided_as
    )
    present = presence("ade20k_train.txt")
    images = [scenario.select(step, present) for step in scenario]
    assert [len(chosen) for chosen in images] == ADE_DIVIDED[order, split]
    together = np.concatenate(images)
    assert len(np.unique(together)) == len(together) == 20196, "each image once"
    for step, chosen in zip(scenario, images, strict=True):
        assert present[chosen][:, step.new].any(axis=1).all(), "each shows a new class"


def test_ade_100_50_run_by_itself_would_be_another_split():
    assert counts(ADE, "100-50", "divided", "ade20k_train.txt") == [14026, 6170]


def test_ade_by_the_rule_of_voc_would_be_another_split():
    """Which is why the data set refuses the mode."""
    assert counts(ADE, "100-50", "disjoint", "ade20k_train.txt") == [10806, 9390]
    assert set(Ade20k.no_modes) == {"disjoint", "sequential"}


def test_ade_images_and_classes():
    present = presence("ade20k_train.txt")
    assert len(present) == 20210 and len(presence("ade20k_val.txt")) == 2000
    assert int((~present[:, ADE.ids].any(axis=1)).sum()) == 14, "images without a class"
    assert int(present[:, ADE.resolve("escalator")].sum()) == 41
    scenario = make_scenario(ADE, "100-50", "divided", offline=True)
    assert len(scenario.select(scenario[0], present)) == 20196
