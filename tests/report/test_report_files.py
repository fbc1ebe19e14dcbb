"""A report as numbers: what the ending says is what is written."""

from __future__ import annotations

import csv
import io
import json

import pytest

from segue.core.errors import UserError
from segue.report import write_report

TWO = (("a",), ("b, c",))
STEP0 = [[50, 0], [10, 40]]
STEP1 = [[45, 0, 5], [10, 20, 10], [0, 0, 30]]
JOINT = [[50, 0, 0], [8, 32, 0], [0, 6, 24]]


@pytest.fixture
def runs(make_run):
    caf = make_run("caf", groups=TWO, matrices=[STEP0, STEP1])
    return [caf, make_run("joint", groups=TWO, matrices=[JOINT]), make_run("mib", groups=TWO, steps=1)]


def test_csv_has_a_row_for_each_run_and_step(runs, tmp_path):
    text = write_report(runs, tmp_path / "x.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(row["method"], row["step"]) for row in rows] == [
        ("caf", "0"),
        ("caf", "1"),
        ("joint", "1"),
        ("mib", "0"),
    ]
    # a: 40/50, then 20/40; b: 30/45
    assert float(rows[0]["old"]) == 80 and rows[0]["new"] == rows[0]["iou b, c"] == ""
    assert [float(rows[1][key]) for key in ("old", "new", "iou a", "iou b, c")] == pytest.approx(
        [50, 66.6667, 50, 66.6667]
    )


def test_json_has_the_scores_of_every_run(runs, tmp_path):
    document = json.loads(write_report(runs, tmp_path / "x.json").read_text(encoding="utf-8"))
    assert document["steps"] == [["a"], ["b, c"]] and document["dataset"] == "shapes"
    caf, joint, mib = (method["runs"][0] for method in document["methods"])
    assert caf["final"]["forgetting"] == pytest.approx(30) and caf["steps"][1]["old"] == pytest.approx(50)
    assert caf["final"]["plasticity"] == pytest.approx(100 * (2 / 3) / 0.8, abs=1e-3)
    assert caf["steps"][0]["new"] is None and caf["steps"][1]["classes"]["b, c"] == pytest.approx(66.6667)
    assert joint["final"] == {} and joint["steps"][0]["step"] == 1
    assert mib["finished"] is False and mib["final"] == {}


def test_endings(runs, tmp_path):
    assert write_report(runs, tmp_path / "x.HTML").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert write_report(runs, tmp_path / "x.md").read_text(encoding="utf-8").startswith("**Mean IoU")
    assert write_report(runs, tmp_path / "x.pdf").read_bytes().startswith(b"%PDF")
    assert (
        write_report(runs, tmp_path / "x.svg").read_text(encoding="utf-8").count(">mean IoU, percent<") == 3
    )
    with pytest.raises(UserError, match="no curves"):
        write_report(runs[1:2], tmp_path / "x.png")
    for name in ("x.xlsx", "x"):
        with pytest.raises(UserError, match=r"\.html, \.md, \.csv, \.json"):
            write_report(runs, tmp_path / name)
        assert not (tmp_path / name).exists()
