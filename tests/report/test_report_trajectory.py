"""Charts of the tests during a step: where there is something to compare, and nowhere else."""

from __future__ import annotations

import math

import pytest

from segue.core.errors import UserError
from segue.core.records import TrajectoryRecord
from segue.report.comparison import compare
from segue.report.html import render
from segue.report.trajectory import strategy_sheet, trajectories, trajectory_charts

TWO = (("a",), ("b",))
STEP0 = [[50, 0], [10, 40]]
STEP1 = [[45, 0, 5], [10, 20, 10], [0, 0, 30]]
# old 40/50 and new 30/30; old 20/40 and new 15/30; old 10/40 and new 30/30
BETTER = ((50, 0, 0), (10, 40, 0), (0, 0, 30))
MIDDLE = ((50, 0, 0), (20, 20, 0), (15, 0, 15))
WORSE = ((50, 0, 0), (30, 10, 0), (0, 0, 30))


def test_runs_without_strategies_have_no_charts(make_run):
    run = make_run("mib", groups=TWO, matrices=[STEP0, STEP1])
    assert trajectory_charts(compare([run])) == []
    TrajectoryRecord(1, 2, 1, {"predict": BETTER}).write(run.folder)
    assert trajectory_charts(compare([run])) == [], "one way to predict is nothing to compare"
    assert "The old model at test time" not in render([run])


def test_charts_show_every_strategy_over_the_epochs(make_run):
    run = make_run("caf", groups=TWO, matrices=[STEP0, STEP1])
    TrajectoryRecord(0, 12, 1, {"skip": ((50, 0), (10, 40))}).write(run.folder)
    TrajectoryRecord(1, 10, 1, {"skip": MIDDLE, "zero": WORSE, "concat": BETTER}).write(run.folder)
    TrajectoryRecord(1, 2, 1, {"skip": WORSE, "zero": MIDDLE, "concat": MIDDLE}).write(run.folder)
    old, new = trajectory_charts(compare([run]))
    assert "caf, step 1: classes of step 0" in old.title and "caf, step 1: later classes" in new.title
    for chart in (old, new):
        axes = chart.figure.axes[0]
        assert list(axes.get_xticks()) == [2, 10] and axes.get_ylim() == (0, 100), "one scale for both"
        assert [text.get_text() for text in chart.figure.legends[0].get_texts()] == ["skip", "zero", "concat"]
    points = [
        [
            list(map(float, line.get_ydata()))
            for line in chart.figure.axes[0].get_lines()
            if line.get_marker() in "os^"
        ]
        for chart in (old, new)
    ]
    # skip: old 10/40 then 20/40; new 30/30 then 15/30; concat at the end: old 40/50
    assert points[0][0] == pytest.approx([25, 50]) and points[1][0] == pytest.approx([100, 50])
    assert points[0][2][1] == pytest.approx(80)
    page = render([run])
    assert page.count("<svg") == 5 and "<h2>The old model at test time</h2>" in page
    assert "<b>zero</b>" in page and "<b>concat</b>" in page


def test_charts_escape_names(make_run):
    run = make_run("x<y", "odd", groups=TWO, matrices=[STEP0, STEP1])
    TrajectoryRecord(1, 2, 1, {"<u>": BETTER, "zero": WORSE}).write(run.folder)
    page = render([run])
    assert "&lt;u&gt;" in page and "<u>" not in page
    assert "x&lt;y, step 1" in page and "x<y" not in page


def test_seeds_share_a_line(make_run):
    runs = [make_run("caf", seed=seed, groups=TWO, matrices=[STEP0, STEP1]) for seed in (0, 1)]
    for run, matrix in zip(runs, (BETTER, MIDDLE), strict=True):
        TrajectoryRecord(1, 4, 1, {"skip": matrix, "zero": WORSE}).write(run.folder)
    TrajectoryRecord(1, 6, 1, {"skip": BETTER, "zero": WORSE}).write(runs[0].folder)
    (found,) = trajectories("caf", runs)
    assert (found.label, found.step, found.epochs) == ("caf", 1, (4, 6))
    both, single = found.scores["skip"]["old"]
    assert both.mean == pytest.approx((80 + 50) / 2) and both.std == pytest.approx(30 / 2**0.5)
    assert single.mean == pytest.approx(80) and math.isnan(single.std)
    assert len(trajectory_charts(compare(runs))) == 2


def test_rows_with_other_settings_have_their_own_charts(make_run):
    runs = [make_run("caf", name, groups=TWO, params={"n": name}) for name in ("one", "two")]
    for run in runs:
        TrajectoryRecord(1, 1, 1, {"skip": BETTER, "zero": WORSE}).write(run.folder)
    charts = trajectory_charts(compare(runs))
    assert [chart.title for chart in charts] == [
        f"caf ({name}), step 1: {what}"
        for name in ("one", "two")
        for what in ("classes of step 0", "later classes")
    ]


def test_sheet_has_the_first_and_the_last_test_of_each_strategy(make_run):
    run = make_run("caf", groups=TWO, matrices=[STEP0, STEP1])
    for epoch, matrix in ((1, WORSE), (2, BETTER), (3, MIDDLE)):
        TrajectoryRecord(1, epoch, 1, {"skip": matrix, "zero": BETTER}).write(run.folder)
    rows = dict(strategy_sheet(trajectories("caf", [run]), "here").rows)
    assert [round(cell.mean, 1) for cell in rows["step 1, skip, epoch 1"]] == [25.0, 100.0, 62.5]
    assert [round(cell.mean, 1) for cell in rows["step 1, skip, epoch 3"]] == [50.0, 50.0, 50.0]
    assert list(rows)[2:] == ["step 1, zero, epoch 1", "step 1, zero, epoch 3"]


def test_bad_file_of_a_test_is_named(make_run):
    run = make_run("caf", groups=TWO)
    TrajectoryRecord(1, 2, 1, {"skip": BETTER, "zero": WORSE}).write(run.folder)
    (run.folder / "trajectory" / "1-0004.json").write_text("[]")
    with pytest.raises(UserError, match=r"1-0004\.json is not a record of a test during a step"):
        render([run])
