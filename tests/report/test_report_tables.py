"""The numbers of the tables, worked out by hand, and what they refuse."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import islice

import pytest
from rich.console import Console
from rich.table import Table

from segue.core.classes import ClassTable
from segue.core.config import TrainConfig
from segue.core.errors import UserError
from segue.core.scenario import make_scenario
from segue.report import metrics_table, results_table
from segue.report.comparison import compare, format_number, split_text
from segue.report.tables import metrics_sheet, results_sheet

TWO = (("a",), ("b",))
STEP0 = [[50, 0], [10, 40]]
STEP1 = [[45, 0, 5], [10, 20, 10], [0, 0, 30]]
JOINT = [[50, 0, 0], [8, 32, 0], [0, 6, 24]]


def printed(table: Table, width: int = 80) -> str:
    console = Console(width=width, force_terminal=False, no_color=True)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def numbers(text: str, label: str) -> list[str]:
    line = next(line for line in text.splitlines() if line.strip().startswith(label))
    return line.split()[1:]


def test_results_by_hand(make_run):
    caf = make_run("caf", groups=TWO, matrices=[STEP0, STEP1])
    joint = make_run("joint", groups=TWO, matrices=[JOINT])
    text = printed(results_table([caf, joint]))
    # a: 40/50, then 20/40; b: 30/45; Joint: a 32/46, b 24/30.
    assert numbers(text, "caf") == ["80.0", "50.0", "66.7", "58.3", "30.0"]
    assert numbers(text, "joint") == ["-", "69.6", "80.0", "74.8", "-"]
    assert "shapes, split 1-1, 2 steps, overlapped" in " ".join(text.split())
    assert "background is left out. Joint is trained once" in " ".join(text.split())


def test_metrics_by_hand(make_run):
    caf = make_run("caf", groups=TWO, matrices=[STEP0, STEP1])
    joint = make_run("joint", groups=TWO, matrices=[JOINT])
    text = printed(metrics_table([caf, joint]))
    # with background 45/60; h = 2 (1/2) (2/3) / (7/6); average of 80 and 58.33; plasticity (2/3) / 0.8
    expected = ["62.5", "63.9", "57.1", "69.2", "-30.0", "62.5", "83.3", "16.4", "1.0", "101"]
    assert numbers(text, "caf") == expected
    assert numbers(text, "joint")[3:8] == ["-"] * 5


def test_seeds_share_a_row(make_run):
    better = [STEP0, [[45, 0, 5], [0, 40, 0], [0, 0, 30]]]
    runs = [
        make_run("mib", seed=0, groups=TWO, matrices=[STEP0, STEP1]),
        make_run("mib", seed=1, groups=TWO, matrices=better),
    ]
    (row,) = results_sheet(compare(runs)).rows
    label, cells = row
    assert label == "mib"
    assert cells[1].mean == pytest.approx(75) and cells[1].std == pytest.approx(50 / 2**0.5)
    assert "±35.4" in printed(results_table(runs))


def test_recipe_without_newer_settings_shares_a_row(make_run):
    older, newer = (make_run("mib", f"mib-s{seed}", seed=seed) for seed in (0, 1))
    newer.recipe["train"]["views"] = TrainConfig().views
    (entry,) = compare([older, newer]).entries
    assert len(entry.runs) == 2
    newer.recipe["train"]["views"] = TrainConfig().views + 1
    assert len(compare([older, newer]).entries) == 2


def test_other_settings_and_repetitions_get_their_own_row(make_run):
    runs = [
        make_run("caf", "plain"),
        make_run("caf", "strong", params={"kd_weight": 100}),
        make_run("caf", "again"),
    ]
    assert [entry.label for entry in compare(runs).entries] == ["caf (plain)", "caf (strong)", "caf (again)"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dataset": "voc"}, "the data set is 'shapes' in the first and 'voc' in the second"),
        (
            {"groups": (("disc", "square", "<b>"), ("star", "moon"))},
            "the split is 3-1-1 in the first and 3-2",
        ),
        (
            {"groups": (("disc", "square", "<b>"), ("moon",), ("star",))},
            "step 1 has class 'star' in the first",
        ),
        (
            {"policy": {"mode": "overlapped", "void": "ignore", "future": "ignore"}},
            "the policy 'void' is 'background'",
        ),
        (
            {
                "policy": {
                    "mode": "overlapped",
                    "void": "background",
                    "future": "ignore",
                    "tested": "held-out 0.2 of the training images",
                }
            },
            "the policy 'tested' is ",
        ),
    ],
)
def test_mixing_is_refused(make_run, change, words):
    runs = [make_run("caf", "one"), make_run("mib", "other", **change)]
    with pytest.raises(UserError, match=re.escape(words)) as caught:
        results_table(runs)
    assert "one and " in str(caught.value) and "other cannot stand in one table" in str(caught.value)


def test_unfinished_runs_have_dashes(make_run):
    runs = [make_run("caf", steps=1), make_run("mib"), make_run("plop", steps=0)]
    text = printed(results_table(runs))
    assert re.search(r"^ *caf \* +\d+\.\d( +-){7}\s*$", text, re.MULTILINE)
    assert "* caf-0 is not finished: 1 of 3 steps so far." in text
    assert "plop-0 is left out" in text
    assert all(value.mean != value.mean for value in metrics_sheet(compare(runs)).rows[0][1])


def test_no_step_at_all(make_run):
    with pytest.raises(UserError, match="nothing to report"):
        results_table([make_run("caf", steps=0)])


def test_another_test_set_is_noted(make_run):
    runs = [
        make_run("caf", groups=TWO, matrices=[STEP0, STEP1]),
        make_run("joint", groups=TWO, matrices=[[*JOINT[:2], [0, 0, 9]]]),
    ]
    assert "Not scored on the same test pixels as caf-0: joint-0." in " ".join(
        printed(results_table(runs)).split()
    )


@pytest.mark.parametrize("later", ["de", "def"])
def test_three_and_four_steps_fit_80_columns(make_run, later):
    groups = (("a", "b", "c"), *((name,) for name in later))
    runs = [make_run("finetune", seed=seed, groups=groups) for seed in range(2)] + [
        make_run("joint", groups=groups)
    ]
    for table in (results_table(runs), metrics_table(runs)):
        text = printed(table)
        assert Console(width=200).measure(table).maximum <= 80
        assert "…" not in text and numbers(text, "joint")


def test_many_steps_show_first_last_and_average(make_run):
    groups = (("a", "b"), *((name,) for name in "cdefg"))
    sheet = results_sheet(compare([make_run("caf", groups=groups)]))
    assert [upper for upper, _ in sheet.heads] == ["step 0", *["step 5"] * 3, "over steps", "points"]
    assert "…" not in printed(results_table([make_run("mib", groups=groups)]))


def test_markup_in_names_is_shown_as_it_is(make_run):
    assert "x[bold]" in printed(results_table([make_run("x[bold]", "run")]))


def test_split_text():
    assert split_text((("a", "b"), ("c",))) == "2-1"
    assert split_text((("a", "b"), *((str(k),) for k in range(10)))) == "2-1x10"


@pytest.mark.parametrize("sizes", [(5, 2, 2), (4, 3, 2), (3,) * 8, (100, *[10] * 5), (10, *[1] * 10, 2, 2)])
def test_what_a_table_prints_is_a_split(sizes: tuple[int, ...]):
    names = iter(f"c{number}" for number in range(sum(sizes)))
    groups = tuple(tuple(islice(names, size)) for size in sizes)
    classes = ClassTable("shapes", dict(enumerate(sum(groups, ()), start=1)))
    scenario = make_scenario(classes, split_text(groups))
    assert tuple(map(len, scenario.groups)) == sizes


def test_format_number():
    assert format_number(float("nan"), 1) == "-"
    assert format_number(-0.04, 1) == "0.0"


def test_the_title_says_which_images_were_tested(make_run):
    policy = {
        "mode": "overlapped",
        "void": "background",
        "future": "ignore",
        "tested": "held-out 0.2 of them",
    }
    assert compare([make_run("caf", policy=policy)]).title.endswith(", overlapped, on held-out 0.2 of them")


def test_runs_that_differ_in_no_number_stand_in_one_row(make_run):
    runs = [make_run("caf", seed=seed) for seed in (0, 1)]
    other = replace(runs[1], recipe=runs[1].recipe | {"train": {"seed": 1, "epochs": 3, "cache_gb": 4}})
    assert len(compare([runs[0], other]).entries) == 1
    longer = replace(runs[1], recipe=runs[1].recipe | {"train": {"seed": 1, "epochs": 4}})
    assert len(compare([runs[0], longer]).entries) == 2


def test_one_step_has_nothing_to_forget(make_run):
    comparison = compare([make_run("finetune", groups=(("cat", "dog"),))])
    words = " ".join(
        word
        for sheet in (results_sheet(comparison), metrics_sheet(comparison))
        for word in (*(" ".join(head) for head in sheet.heads), *sheet.caption)
    )
    assert not [word for word in ("forgetting", "BWT", "plas-", "mean steps") if word in words]
    for sheet in (results_sheet(comparison), metrics_sheet(comparison)):
        assert {len(cells) for _, cells in sheet.rows} == {len(sheet.heads)} == {len(sheet.decimals)}
