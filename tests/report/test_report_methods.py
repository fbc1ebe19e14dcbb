"""Many methods in one table: numbers by hand, room in a terminal, and the page with the papers' numbers."""

from __future__ import annotations

import dataclasses
import math
import re

import pytest
from rich.console import Console

from segue.core.errors import UserError
from segue.core.records import RunRecord
from segue.core.remarks import PaperNumbers, Remarks
from segue.report.methods import (
    MethodTable,
    methods_page,
    methods_sheet,
    methods_table,
    others_sheet,
    paper_sheet,
)

TWO = (("a",), ("b",))
STEP0 = [[50, 0], [10, 40]]
STEP1 = [[45, 0, 5], [10, 20, 10], [0, 0, 30]]
BETTER = [[45, 0, 5], [0, 40, 0], [0, 0, 30]]
JOINT = [[50, 0, 0], [8, 32, 0], [0, 6, 24]]
SETTING = "shapes 1-1 overlapped"


@pytest.fixture
def table(make_run) -> MethodTable:
    """mib with two seeds, lwf with one of two begun and the other not, joint with one run of two."""
    runs = {
        "mib": tuple(
            make_run("mib", seed=seed, groups=TWO, matrices=[STEP0, last])
            for seed, last in enumerate((STEP1, BETTER))
        ),
        "lwf": (make_run("lwf", groups=TWO, steps=1),),
        "joint": (make_run("joint", groups=TWO, matrices=[JOINT]),),
    }
    return MethodTable(SETTING, 2, runs)


def costly(run: RunRecord) -> RunRecord:
    """The same run after days, with a lot of memory."""
    steps = [
        dataclasses.replace(step, seconds={"train": 60000.0}, peak_memory=80_000 * 2**20)
        for step in run.steps
    ]
    return dataclasses.replace(run, steps=tuple(steps))


def lines(table: MethodTable) -> list[str]:
    console = Console(width=80, force_terminal=False, no_color=True)
    with console.capture() as capture:
        console.print(methods_table(table))
    return capture.get().splitlines()


def means(cells) -> list[float]:
    return [cell.mean for cell in cells]


def test_a_run_that_had_to_wait_does_not_count_in_minutes(make_run):
    runs = [make_run("mib", seed=seed, groups=TWO, matrices=[STEP0, STEP1]) for seed in range(3)]
    waited = [
        dataclasses.replace(
            run, steps=(run.steps[0], dataclasses.replace(run.steps[1], seconds={"train": seconds}))
        )
        for run, seconds in zip(runs, (60.0, 6000.0, 120.0), strict=True)
    ]
    table = MethodTable(SETTING, 3, {"mib": tuple(waited)})
    assert table.costs("mib")[1].mean == 2


def test_numbers_by_hand(table):
    sheet = methods_sheet(table)
    assert [label for label, _ in sheet.rows] == ["mib", "lwf *", "joint *"]
    mib, lwf, joint = (cells for _, cells in sheet.rows)
    # a: 20/40 and 40/40 after 40/50; b: 30/45 and 30/35
    new = [200 / 3, 600 / 7]
    expected = [
        75,
        sum(new) / 2,
        (50 + 100 + sum(new)) / 4,
        (30 - 20) / 2,
        0.5,
        101,
    ]  # minutes of step 1 alone
    assert means(mib) == pytest.approx(expected)
    assert mib[0].std == mib[3].std == pytest.approx(50 / 2**0.5)
    assert all(math.isnan(cell.std) for cell in mib[4:]), "of the costs only the mean is shown"
    assert all(math.isnan(mean) for mean in means(lwf)) and len(lwf) == 6
    assert means(joint)[:3] == pytest.approx([3200 / 46, 80, (3200 / 46 + 80) / 2])
    assert math.isnan(joint[3].mean) and means(joint)[4:] == pytest.approx([0.5, 100])


def test_caption_says_what_the_numbers_are(table):
    sheet = methods_sheet(table)
    text = " ".join(sheet.caption)
    assert sheet.title == "Methods: shapes, split 1-1, 2 steps, overlapped"
    assert "In percent" in text and "background is left out" in text and "Joint is trained once" in text
    assert "Mean ± standard deviation of 2 seeds." in text
    assert "lwf (2 of 2)" in sheet.caption[-1] and "joint (1 of 2)" in sheet.caption[-1]
    assert "lwf-0" not in text, "one line for all of them"
    whole = MethodTable(SETTING, 1, {"joint": table.runs["joint"]})
    assert (
        "One seed." in methods_sheet(whole).caption[0] and "not finished" not in methods_sheet(whole).caption
    )


def test_runs_on_other_test_images_are_noted_and_other_splits_refused(make_run, table):
    other = make_run("caf", groups=TWO, matrices=[STEP0, [[45, 0, 5], [10, 20, 10], [0, 0, 9]]])
    sheet = methods_sheet(MethodTable(SETTING, 1, {"joint": table.runs["joint"], "caf": (other,)}))
    assert "joint-0" in sheet.caption[-1] and "caf-0" in sheet.caption[-1]
    with pytest.raises(UserError, match="cannot stand in one table"):
        methods_sheet(MethodTable(SETTING, 1, {**table.runs, "far": (make_run("far"),)}))


def test_runs_with_other_data_folders_share_a_row(table):
    moved = dataclasses.replace(table.runs["mib"][1], recipe={**table.runs["mib"][1].recipe, "data": "moved"})
    sheet = methods_sheet(MethodTable(SETTING, 2, {"mib": (table.runs["mib"][0], moved)}))
    assert len(sheet.rows) == 1 and sheet.rows[0][1][0].mean == pytest.approx(75)


def test_fifteen_methods_with_deviations_fit_80_columns_a_line_each(make_run):
    # all or nothing: the widest means and deviations that there are
    lost = [[0, 0, 0], [100, 0, 0], [100, 0, 0]]
    kept = [[0, 0, 0], [0, 100, 0], [0, 0, 100]]
    widest = [[[[0, 0], [100, 0]], kept], [[[0, 0], [0, 100]], lost], [[[0, 0], [100, 0]], kept]]
    runs = {
        name: tuple(
            costly(
                make_run(
                    name, seed=seed, groups=TWO, matrices=widest[seed] if name == "widest_name" else None
                )
            )
            for seed in range(3)
        )
        for name in ("finetune", "widest_name", *(f"method{index}" for index in range(12)), "joint")
    }
    table = MethodTable(SETTING, 4, runs)  # one seed is missing: every name has its star
    text = lines(table)
    assert Console(width=200).measure(methods_table(table)).maximum <= 80
    assert all(len(line) <= 80 for line in text) and not any("…" in line for line in text)
    rows = dict(line.split(" *", 1) for line in text[4:19])
    assert list(rows) == list(runs)
    assert rows["widest_name"].split() == [*["66.7", "±57.7"] * 3, "-33.3", "±115.5", "1000.0", "80000"]
    assert rows["joint"].split()[-3:] == ["-", "1000.0", "80000"]


def test_means_stand_below_each_other(table):
    text = lines(table)
    mib = next(line for line in text if line.startswith("mib"))
    assert " ".join(mib.split()) == "mib 75.0 ±35.4 76.2 ±13.5 75.6 ±24.4 5.0 ±35.4 0.5 101"
    same = {"mib": table.runs["mib"], "even": (table.runs["mib"][0],) * 2}
    rows = [line for line in lines(MethodTable(SETTING, 2, same)) if line.startswith(("mib", "even"))]
    assert rows[0].index("75.0") == rows[1].index("50.0") and "± 0.0" in rows[1]


def test_paper_s_numbers_stand_beside_ours(table):
    sheet = paper_sheet(
        table, PaperNumbers("VOC 15-1 disjoint", {"mib": (35.1, None, 29.7), "caf": (1, 2, 3)})
    )
    assert sheet.heads == tuple(
        (whose, name) for whose in ("ours", "paper") for name in ("old", "new", "all")
    )
    assert [label for label, _ in sheet.rows] == ["mib", "lwf", "joint"], "caf is not compared here"
    (_, mib), (_, lwf), (_, joint) = sheet.rows
    assert mib[0].mean == pytest.approx(75) and (mib[3].mean, mib[5].mean) == (35.1, 29.7)
    assert math.isnan(mib[4].mean) and all(math.isnan(cell.mean) for cell in (*lwf, *joint[3:]))
    assert sheet.caption[0] == "Ours: shapes 1-1 overlapped. Paper: VOC 15-1 disjoint."
    assert "other data and another network: compare the order" in sheet.caption[1]


def test_other_means_by_hand(table):
    keeps = {"mib": "teacher", "lwf": "teacher, memory of 9 images"}
    sheet = others_sheet(dataclasses.replace(table, keeps=keeps))
    assert [label for label, _ in sheet.rows] == ["mib: teacher", "lwf: teacher, memory of 9 images", "joint"]
    assert [" ".join(head) for head in sheet.heads] == ["old +bg", "all +bg", "h IoU", "mean steps"]
    mib, lwf, joint = (cells for _, cells in sheet.rows)
    # background: 45/60 and 45/50; a: 20/40 and 40/40; b: 30/45 and 30/35; all after step 0: 80
    old_bg = [(75 + 50) / 2, (90 + 100) / 2]
    all_bg = [(75 + 50 + 200 / 3) / 3, (90 + 100 + 600 / 7) / 3]
    harmonic = [2 / (1 / 50 + 3 / 200), 2 / (1 / 100 + 7 / 600)]
    over_steps = [(80 + (50 + 200 / 3) / 2) / 2, (80 + (100 + 600 / 7) / 2) / 2]
    expected = [sum(pair) / 2 for pair in (old_bg, all_bg, harmonic, over_steps)]
    assert means(mib) == pytest.approx(expected)
    assert mib[0].std == pytest.approx((old_bg[1] - old_bg[0]) / 2**0.5)
    assert all(math.isnan(mean) for mean in means(lwf)) and len(lwf) == 4
    assert math.isnan(joint[3].mean) and not math.isnan(joint[2].mean), "Joint has no steps to average over"
    assert "2 seeds" in sheet.caption[0] and "harmonic mean of old and new" in sheet.caption[0]


REMARKS = Remarks(
    PaperNumbers("VOC", {"mib": (35.1, 13.5, 29.7)}),
    {"joint": "The bound.", "caf": "Not here.", "mib": "Folded\n  over lines."},
)


def test_page(table):
    page = methods_page([dataclasses.replace(table, remarks=REMARKS)], "segue compare --on shapes", "page")
    assert page.startswith(
        "# Methods on shapes 1-1 overlapped\n\nMade from the records by `segue compare --on shapes`; do not"
    )
    assert "| mib | 75.0 ± 35.4 | 76.2 ± 13.5 | 75.6 ± 24.4 | 5.0 ± 35.4 | 0.5 | 101 |\n" in page
    assert "| mib | 75.0 ± 35.4 | 76.2 ± 13.5 | 75.6 ± 24.4 | 35.1 | 13.5 | 29.7 |\n" in page
    assert page.endswith("\n\n* **mib**: Folded over lines.\n* **joint**: The bound.\n")
    assert "\n## " not in page


def test_page_without_remarks_is_title_command_tables_and_chart(table):
    page = methods_page([table], "segue compare", "page")
    assert page.count("| --- |") == 2 and "paper" not in page.lower() and "* **" not in page
    assert page.count("![") == 1 and "](figures/page-runs-old-new.svg)" in page, "two steps are no line"


def test_page_of_several_settings_has_a_section_for_each(table, make_run):
    long = {name: (make_run(name, f"long-{name}", dataset="shapes"),) for name in ("mib", "joint")}
    other = MethodTable("shapes 3-1 overlapped", 1, long, remarks=REMARKS, folder="shapes-3-1")
    page = methods_page([table, other], "segue compare", "all")
    assert page.startswith("# Methods on shapes\n\nMade from")
    first, second = page.split("\n## ")[1:]
    assert first.startswith("shapes 1-1 overlapped\n\n") and second.startswith("shapes 3-1 overlapped\n\n")
    assert "paper" not in first and "* **mib**: Folded" in second
    assert "2 steps" in first and "3 steps" in second
    files = re.findall(r"]\((.*?)\)", second)
    assert files == ["figures/all-shapes-3-1-steps.svg", "figures/all-shapes-3-1-old-new.svg"]
    assert list(other.charts("all")) == files
