"""Runs of different length, and extensions, in one table: a dash where there is no step."""

import csv
import io
import json
import math

import pytest

from segue.core.errors import UserError
from segue.report.comparison import compare
from segue.report.files import csv_table, json_document
from segue.report.html import render
from segue.report.tables import results_sheet

ONE = (("cat", "dog"),)
TWO = (*ONE, ("bird",))
THREE = (*TWO, ("fish",))
SEQUENTIAL = {"mode": "sequential", "void": "background", "future": "ignore"}


def defined(cells) -> list[bool]:
    return [not math.isnan(cell.mean) for cell in cells]


def test_a_shorter_run_has_dashes_after_its_end(make_run):
    sheet = results_sheet(compare([make_run("mib", groups=TWO), make_run("caf", groups=THREE)]))
    assert [head[0] for head in sheet.heads[:7]] == ["step 0", *["step 1"] * 3, *["step 2"] * 3]
    rows = dict(sheet.rows)
    assert defined(rows["mib"]) == [True] * 4 + [False] * 3 + [True]
    assert all(defined(rows["caf"]))
    assert any("mib-0" in line and "step" in line for line in sheet.caption)


def test_an_extension_stands_at_its_own_step(make_run):
    first = make_run("mib", "first", groups=ONE, dataset="pets")
    grown = make_run("mib", "grown-run", groups=TWO, learned=1, policy=SEQUENTIAL, dataset="folder")
    further = make_run("mib", "far-run", groups=THREE, learned=2, policy=SEQUENTIAL, dataset="folder")
    comparison = compare([grown, first, further])
    assert comparison.dataset == "pets" and comparison.groups == THREE
    rows = dict(results_sheet(comparison).rows)
    assert defined(rows["mib (first)"]) == [True] + [False] * 7
    assert defined(rows["mib (grown-run)"]) == [False, True, True, True, *[False] * 4]
    assert defined(rows["mib (far-run)"]) == [*[False] * 4, True, True, True, False], "forgot: not known"
    assert "grown-run" in " ".join(comparison.notes)


def test_joint_bounds_runs_of_the_same_classes_alone(make_run):
    runs = [make_run("mib", groups=TWO), make_run("caf", groups=THREE), make_run("joint", groups=THREE)]
    comparison = compare(runs)
    mib, caf, joint = comparison.entries
    assert math.isnan(mib.incremental_stat(lambda s: s.plasticity, joint).mean)
    assert not math.isnan(caf.incremental_stat(lambda s: s.plasticity, joint).mean)


@pytest.mark.parametrize("other", [(("cat", "dog"), ("fish",)), (("cat", "dog"), ("bird", "fish"))])
def test_runs_that_part_ways_are_refused_whatever_comes_first(make_run, other):
    short = make_run("mib", "short", groups=ONE)
    with pytest.raises(UserError, match="cannot stand in one table"):
        compare([short, make_run("mib", "a", groups=TWO), make_run("mib", "b", groups=other)])


def test_other_data_are_refused_beside_an_extension(make_run):
    grown = make_run("mib", "grown-run", groups=TWO, learned=1, policy=SEQUENTIAL, dataset="folder")
    pets, zoo = (make_run("mib", name, groups=ONE, dataset=name) for name in ("pets", "zoo"))
    with pytest.raises(UserError, match="zoo"):
        compare([grown, pets, zoo])


def test_every_kind_of_report_can_be_written(make_run):
    runs = [
        make_run("mib", groups=TWO),
        make_run("caf", groups=THREE, keys=["a"]),
        make_run("ewc", "ewc-run", groups=THREE, learned=1, policy=SEQUENTIAL),
        make_run("joint", groups=TWO),
    ]
    page = render(runs)
    assert "fish" in page and "ewc-run" in page
    rows = list(csv.DictReader(io.StringIO(csv_table(runs))))
    assert [row["step"] for row in rows] == ["0", "1", "0", "1", "2", "1", "2", "1"]
    methods = {each["label"]: each["runs"][0] for each in json.loads(json_document(runs))["methods"]}
    assert methods["ewc"]["final"] == {} and methods["mib"]["final"]["plasticity"] is not None
