"""Tables of ablations: ours beside the paper's, and how many pairs of rows stand in the same order."""

from __future__ import annotations

import dataclasses
import math
import re

import pytest
from rich.console import Console

from segue.core.ablation import AblationTable, Row
from segue.report.ablation import Ablation, _agreement, ablation_page, ablation_sheet, ablation_table

TWO = (("a",), ("b",))
WHERE = "voc 15-5 disjoint"


@pytest.fixture
def make(make_run):
    """An ablation from (name, the paper's 'all' or None, our 'all' of each seed), all in percent."""

    def build(*rows: tuple[str, float | None, list[int]], setting: str = "shapes 1-1 overlapped") -> Ablation:
        runs = []
        for name, _, ours in rows:
            runs.append([])
            for seed, value in enumerate(ours):  # both classes have this IoU: the rest is background
                hits = [[0, 0, 0], [100 - value, value, 0], [100 - value, 0, value]]
                matrices = [[[0, 0], [100 - value, value]], hits]
                runs[-1].append(make_run("caf", f"{name}-s{seed}", groups=TWO, matrices=matrices, seed=seed))
        table = AblationTable(
            "Parts",
            tuple(
                Row(name, name, paper={} if paper is None else {WHERE: (1.0, 2.0, paper)})
                for name, paper, _ in rows
            ),
        )
        return Ablation("parts", table, setting, tuple(map(tuple, runs)))

    return build


def remark(ablation: Ablation) -> str:
    return _agreement(ablation)


def test_pairs_are_counted_by_the_paper_s_order(make):
    found = make(
        ("a", 10.0, [20]),
        ("b", 30.0, [40]),
        ("c", 20.0, [50]),  # above b here, below it in the paper
        ("d", 20.0, [45]),  # equal to c in the paper: no pair
        ("e", None, [90]),  # not in the paper
    )
    # a<b, a<c, a<d agree; c<b and d<b are the other way round
    said = remark(found)
    assert re.findall(r"\d+", said) == ["5", "3", "2", "0"], "pairs, as in the paper, other way round, close"
    assert re.findall(r"\w above \w", said) == ["c above b", "d above b"]


def test_pairs_closer_than_their_spread_decide_nothing(make):
    # means 50 and 52, standard deviations sqrt(2) each: 2 < 2 sqrt(2). The third is far above both.
    found = make(("a", 1.0, [49, 51]), ("b", 2.0, [51, 53]), ("c", 3.0, [80, 80]))
    assert remark(found).startswith("Of 3 pairs of rows, 2 stand")
    assert "0 the other way round, 1 are closer" in remark(found) and "Other way" not in remark(found)
    # the same the other way round: 52 below 50 in the paper is no contradiction, 80 is one
    found = make(("x", 3.0, [49, 51]), ("y", 2.0, [51, 53]), ("z", 1.0, [80, 80]))
    assert "0 stand" in remark(found) and "2 the other way round, 1 are closer" in remark(found)
    assert remark(found).endswith("Other way round: z above x; z above y.")


def test_order_of_rows_is_spoken_of_only_where_there_are_several_seeds(make):
    several = make(("a", 1.0, [49, 51]), ("b", 2.0, [61, 63]))
    assert ablation_sheet(several).caption[-1] == _agreement(several)
    assert not any(
        "pairs" in line for line in ablation_sheet(make(("c", 1.0, [50]), ("d", 2.0, [60]))).caption
    )


def test_equal_rows_of_one_seed_are_neither(make):
    found = make(("a", 1.0, [50]), ("b", 2.0, [50]))
    assert remark(found).startswith(
        "Of 1 pairs of rows, 0 stand in the paper's order of 'all' here, 0 the other"
    )


def test_rows_without_a_finished_run_are_no_pair(make, make_run):
    found = make(("a", 1.0, [50]), ("b", 2.0, [60]), ("c", 3.0, [70]))
    begun = make_run("caf", "begun", groups=TWO, steps=1)
    found = Ablation("parts", found.table, found.setting, (*found.runs[:2], (begun,)))
    assert remark(found).startswith("Of 1 pairs of rows, 1 stand")
    assert all(math.isnan(cell.mean) for cell in found.ours(2))
    assert "Not all runs are finished: c." in ablation_sheet(found).caption


def test_sheet_keeps_ours_and_the_paper_s_apart(make):
    found = make(("a", 30.0, [20, 40]), ("b", None, [50, 50]))
    sheet = ablation_sheet(found)
    assert sheet.heads == (
        *(("ours", n) for n in ("old", "new", "all")),
        *(("paper", n) for n in ("old", "new", "all")),
    )
    (_, first), (_, second) = sheet.rows
    assert [cell.mean for cell in first] == pytest.approx([30, 30, 30, 1, 2, 30])
    assert first[2].std == pytest.approx(20 / 2**0.5) and math.isnan(first[5].std)
    assert all(math.isnan(cell.mean) for cell in second[3:])
    assert sheet.caption[0].startswith("Ours: shapes 1-1 overlapped, mean ± standard deviation of 2 seeds")
    assert sheet.caption[1] == f"Paper: {WHERE}."
    assert "one seed" in ablation_sheet(make(("c", 30.0, [20]))).caption[0]


def test_table_that_is_not_in_the_paper_has_no_columns_for_it(make):
    sheet = ablation_sheet(make(("a", None, [20]), ("b", None, [30])))
    assert [upper for upper, _ in sheet.heads] == ["ours"] * 3
    assert len(sheet.caption) == 1 and "pairs" not in sheet.caption[0]


def test_page_and_terminal_show_the_same_numbers(make):
    found = make(("a", 30.0, [25]), ("b", 31.5, [50]))
    console = Console(width=120, no_color=True)
    with console.capture() as capture:
        console.print(ablation_table(found))
    page = ablation_page([found], "segue ablate parts")
    for name, numbers in {"a": "25.0 25.0 25.0 1.0 2.0 30.0", "b": "50.0 50.0 50.0 1.0 2.0 31.5"}.items():
        assert f"{name} {numbers}" in " ".join(capture.get().split())
        assert f"| {name} | {numbers.replace(' ', ' | ')} |" in page
    assert page.startswith("# Ablations\n") and "`segue ablate parts`" in page and page.endswith("\n")


def test_images_that_are_no_test_images_are_named(make):
    found = make(("a", None, [40]), ("b", None, [50]))
    assert ablation_sheet(found).caption[0].startswith("Ours: shapes 1-1 overlapped, one seed")
    held = [
        tuple(
            dataclasses.replace(
                run,
                steps=tuple(
                    dataclasses.replace(step, policy=step.policy | {"tested": "held-out 0.2"})
                    for step in run.steps
                ),
            )
            for run in runs
        )
        for runs in found.runs
    ]
    caption = ablation_sheet(dataclasses.replace(found, runs=tuple(held))).caption[0]
    assert caption.startswith("Ours: shapes 1-1 overlapped, on held-out 0.2, one seed")
