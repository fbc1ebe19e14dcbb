"""Tuned values: which is chosen, what is said of it, and room in a terminal."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import yaml
from rich.console import Console

from segue.report.tuning import (
    Trials,
    TuningTable,
    choice_yaml,
    price_sheet,
    tuning_page,
    tuning_sheet,
    tuning_table,
)

TWO = (("a",), ("b",))
STEP0 = [[50, 0], [10, 40]]
WORSE = [[0, 0, 50], [0, 40, 0], [0, 30, 0]]
"""background, which does not count, is lost too"""
BETTER = [[0, 50, 0], [0, 40, 0], [0, 0, 30]]
"""a: 40 / 90, b: 1"""

STILL = [[0, 0, 0], [0, 100, 0], [100, 0, 0]]
"""a: 1, b: 0"""
EVEN = [[0, 0, 0], [60, 40, 0], [60, 0, 40]]
"""both 0.4: the mean is smaller, the harmonic mean larger"""


@pytest.fixture
def table(make_run):
    """A table of methods by their last matrices; None: not begun, 0: one step of two."""

    def make(**methods) -> TuningTable:
        trials = {}
        for name, lasts in methods.items():
            runs = dict.fromkeys((0.5, 3.0, 100.0))
            for value, last in zip(runs, lasts, strict=True):
                matrices = [last] if name == "joint" else [STEP0, last] if last else [STEP0]
                if last is not None:
                    about = {"groups": TWO, "matrices": matrices, "steps": len(matrices)}
                    runs[value] = make_run(name, f"{name}-{value:g}", **about)
            trials[name] = Trials("optim.lr_next" if name == "dft" else "method.params.kd_weight", runs)
        return TuningTable("shapes 1-1 overlapped", 0.25, trials)

    return make


def test_largest_mean_of_all_classes_is_chosen(table):
    found = table(mib=(WORSE, BETTER, WORSE), lwf=(BETTER, BETTER, WORSE), dft=(WORSE, WORSE, BETTER))
    expected = {
        "mib": {"method.params.kd_weight": 3.0},
        "lwf": {"method.params.kd_weight": 0.5},
        "dft": {"optim.lr_next": 100.0},
    }
    assert found.choice("all") == expected, "of equal ones the first"
    assert yaml.safe_load(choice_yaml(expected)) == expected
    sheet = tuning_sheet(found)
    assert [label for label, _ in sheet.rows] == [
        "mib kd_weight=0.5",
        "mib kd_weight=3 ← h",
        "mib kd_weight=100",
        "lwf kd_weight=0.5 ← h",
        "lwf kd_weight=3",
        "lwf kd_weight=100",
        "dft lr_next=0.5",
        "dft lr_next=3",
        "dft lr_next=100 ← h",
    ]
    cells = [[cell.mean for cell in cells] for _, cells in sheet.rows[:2]]
    assert cells == [
        pytest.approx([100 * 40 / 70, 0, 50 * 40 / 70, 0]),
        pytest.approx([100 * 40 / 90, 100, 50 * (40 / 90 + 1), 100 * 80 / 130]),
    ]
    caption = " ".join(sheet.caption)
    assert "on 25 % of the training images" in caption and "not finished" not in caption
    assert "The first or the last value is chosen for lwf, dft: the best may lie outside." in caption


def test_method_with_an_unfinished_run_has_no_choice(table):
    found = table(mib=(BETTER, 0, WORSE), lwf=(None, None, None), dft=(WORSE, BETTER, WORSE))
    assert found.choice("all") == found.choice("hIoU") == {"dft": {"optim.lr_next": 3.0}}
    sheet = tuning_sheet(found)
    labels = [label for label, _ in sheet.rows]
    assert labels[:4] == [
        "mib kd_weight=0.5",
        "mib kd_weight=3 *",
        "mib kd_weight=100",
        "lwf kd_weight=0.5 *",
    ]
    caption = " ".join(sheet.caption)
    assert "* Runs that are not finished: mib-3, lwf-0.5, lwf-3, lwf-100." in caption
    assert "may lie outside" not in caption


def test_table_fits_a_terminal_and_the_page_says_the_same(table):
    found = table(mib=(WORSE, BETTER, WORSE), joint=(BETTER, WORSE, WORSE))
    console = Console(width=80, force_terminal=False, no_color=True)
    with console.capture() as capture:
        console.print(tuning_table(found))
    lines = [line.split() for line in capture.get().splitlines()]
    assert ["mib", "kd_weight=3", "←", "h", "44.4", "100.0", "72.2", "61.5"] in lines
    assert ["joint", "kd_weight=0.5", "←", "h", "44.4", "100.0", "72.2", "61.5"] in lines, (
        "it has one step alone"
    )
    page = tuning_page(found, "segue tune my.yaml")
    start = "# Tuning on shapes 1-1 overlapped\n\nMade from the records by `segue tune my.yaml`; do not edit."
    assert page.startswith(start) and "| mib kd_weight=3 ← h | 44.4 | 100.0 | 72.2 | 61.5 |" in page
    assert "the same number of values, 3, of one setting" in page and "`scenario.hold_out=0.25`" in page
    assert page.endswith(f"```yaml\n{choice_yaml(found.choice('hIoU'))}```\n")


def test_values_are_chosen_by_all_and_by_hiou(table):
    """A model that only keeps what it knows may have the larger mean, but not the larger harmonic one."""
    trials = {"mib": (STILL, EVEN, WORSE)}
    found = table(**trials)
    other = replace(found, by="hIoU")
    assert found.choice("all") == other.choice("all") == {"mib": {"method.params.kd_weight": 0.5}}
    assert found.choice("hIoU") == {"mib": {"method.params.kd_weight": 3.0}}
    labels = [label for label, _ in tuning_sheet(other).rows]
    assert labels == ["mib kd_weight=0.5 ←", "mib kd_weight=3 h", "mib kd_weight=100"]
    assert "chosen by hIoU are used" in " ".join(tuning_sheet(other).caption)
    assert "may lie outside" in " ".join(tuning_sheet(found).caption), "of the choice that is used"
    assert "may lie outside" not in " ".join(tuning_sheet(other).caption)
    page = tuning_page(other, "segue tune my.yaml")
    assert page.index(choice_yaml(other.choice("hIoU"))) < page.index(choice_yaml(other.choice("all")))


def test_price_of_values_that_were_chosen_elsewhere(table):
    found = table(mib=(WORSE, BETTER, WORSE), lwf=(BETTER, WORSE, WORSE), dft=(BETTER, 0, WORSE))
    key = "method.params.kd_weight"
    used = {"mib": {key: 0.5}, "lwf": {key: 7.0}, "dft": {"optim.lr_next": 0.5}, "sdr": {key: 3.0}}
    sheet = price_sheet(replace(found, used=used))
    assert [label for label, _ in sheet.rows] == ["mib kd_weight=0.5, here 3", "lwf kd_weight=7, here 0.5"]
    (_, mib), (_, lwf) = sheet.rows
    best = 50 * (40 / 90 + 1)
    assert [cell.mean for cell in mib] == pytest.approx([50 * 40 / 70, best, best - 50 * 40 / 70])
    assert math.isnan(lwf[0].mean) and math.isnan(lwf[2].mean), "it was not tried here"
    assert "chosen on another split" in tuning_page(replace(found, used=used), "segue tune my.yaml")
