"""A study as one file: packed records that read like folders, a CSV, and paired differences on a page."""

from __future__ import annotations

import csv
import dataclasses
import io
import shutil
from pathlib import Path

import numpy as np
import pytest

from segue.core.errors import UserError
from segue.core.image_counts import ImageCounts, read_counts
from segue.core.records import RunRecord, has_records, read_run
from segue.report.comparison import compare
from segue.report.files import write_report
from segue.report.paired import paired_sheet
from segue.report.study import read_runs, study_csv


def with_counts(run: RunRecord, images: int = 10, names: str = "same") -> RunRecord:
    """Counts of single images whose sums are the run's confusion matrix."""
    rng, last = np.random.default_rng(0), run.steps[-1]
    where = rng.integers(0, images, (*last.matrix.shape, last.matrix.max() + 1))
    counts = np.zeros((images, 3, len(last.matrix)), int)
    for truth, row in enumerate(last.matrix):
        for predicted, pixels in enumerate(row):
            here = np.bincount(where[truth, predicted, :pixels], minlength=images)
            counts[:, 1, truth] += here
            counts[:, 2, predicted] += here
            counts[:, 0, truth] += here if truth == predicted else 0
    ImageCounts(counts, names).write(run.folder, last.step)
    return run


def test_a_packed_run_reads_like_its_folder(make_run, tmp_path: Path) -> None:
    runs = [with_counts(make_run("caf", seed=seed)) for seed in (0, 1)]
    study = write_report(runs, tmp_path / "study.jsonl")
    counts = [read_counts(run.folder, run.steps[-1].step) for run in runs]
    for run in runs:
        shutil.rmtree(run.folder)
    assert [has_records(run.folder) for run in runs] == [True, True] and not has_records(tmp_path / "other")
    assert read_runs([study]) == [read_run(run.folder) for run in runs] == runs
    for run, before in zip(runs, counts, strict=True):
        after = read_counts(run.folder, run.steps[-1].step)
        assert before is not None and after is not None and (after.counts == before.counts).all()


def test_what_cannot_be_packed(make_run, tmp_path: Path) -> None:
    run = make_run("caf")
    with pytest.raises(UserError, match=r"call it .*study\.jsonl"):
        write_report([run], tmp_path / "mine.jsonl")
    with pytest.raises(UserError, match="does not lie below"):
        write_report([run], tmp_path / "elsewhere" / "study.jsonl")
    begun = dataclasses.replace(run, steps=run.steps[:1])
    with pytest.raises(UserError, match="is not finished"):
        write_report([begun], tmp_path / "study.jsonl")


@pytest.mark.parametrize(
    "line",
    [
        "no json",
        '{"format": "other"}',
        '{"format": "segue-study-1", "run": "../a", "recipe": {}, "steps": []}',
        '{"format": "segue-study-1", "run": "a", "recipe": [], "steps": []}',
    ],
)
def test_a_broken_study_is_named_with_its_line(tmp_path: Path, line: str) -> None:
    (tmp_path / "study.jsonl").write_text(line + "\n")
    with pytest.raises(UserError, match=r"study\.jsonl, line 1 is no run"):
        read_run(tmp_path / "a")


def test_a_line_per_method_and_setting(make_run, tmp_path: Path) -> None:
    runs = [make_run(method, seed=seed) for method in ("caf", "mib") for seed in (0, 1)]
    other = make_run("caf", name="elsewhere", seed=0)
    steps = tuple(
        dataclasses.replace(each, policy={**each.policy, "mode": "disjoint"}) for each in other.steps
    )
    rows = list(csv.DictReader(io.StringIO(study_csv([*runs, dataclasses.replace(other, steps=steps)]))))
    found = [(row["method"], row["mode"], row["seeds"]) for row in rows]
    assert found == [("caf", "overlapped", "2"), ("mib", "overlapped", "2"), ("caf", "disjoint", "1")]
    entry = compare(runs).entries[0]
    assert float(rows[0]["all"]) == pytest.approx(100 * entry.step_stat(2, lambda s: s.all).mean, abs=0.01)
    assert rows[0]["all_std"] and not rows[2]["all_std"] and not rows[0]["kept_kib"]
    path = write_report(runs, tmp_path / "study.csv", summary=True)
    assert path.read_text() == study_csv(runs)


def test_rows_of_one_method_have_the_names_of_their_study(make_run) -> None:
    """Of any other folder the name stands in brackets; so it does where two studies have the same name."""
    rows = {"caf-s0": 1, "caf-similar-s0": 2, "mine": 3, "a/mib-s0": 4, "b/mib-s0": 5}
    runs = []
    for name, weight in rows.items():
        run = make_run("mib" if "mib" in name else "caf", name=f"run-{weight}", seed=0)
        recipe = {**run.recipe, "method": {**run.recipe["method"], "params": {"kd_weight": weight}}}
        runs.append(dataclasses.replace(run, recipe=recipe, folder=Path(name)))
    labels = [entry.label for entry in compare(runs).entries]
    assert labels == ["caf", "caf-similar", "caf (mine)", "mib (mib-s0)", "mib (mib-s0)"]


def test_a_summary_as_a_picture_has_mean_ranks(make_run, tmp_path: Path) -> None:
    runs = [make_run(method, seed=0) for method in ("caf", "mib", "finetune", "joint")]
    with pytest.raises(UserError, match="three methods that were all run in the same two settings"):
        write_report(runs, tmp_path / "ranks.svg", summary=True)
    for run in tuple(runs):
        steps = tuple(
            dataclasses.replace(each, policy={**each.policy, "mode": "disjoint"}) for each in run.steps
        )
        runs.append(dataclasses.replace(run, steps=steps))
    with pytest.raises(UserError, match=r"a summary is written as \.csv, \.svg"):
        write_report(runs, tmp_path / "ranks.html", summary=True)
    text = write_report(runs, tmp_path / "ranks.svg", summary=True).read_text()
    assert "mean rank over 2 settings" in text and "finetune" in text and "joint" not in text


def test_differences_are_those_of_the_table_and_have_an_interval(make_run) -> None:
    runs = [with_counts(make_run(name, seed=seed)) for name in ("caf", "mib") for seed in (0, 1)]
    comparison = compare(runs)
    entries = {entry.label: entry for entry in comparison.entries}
    sheet = paired_sheet(comparison, entries)
    assert sheet is not None and len(sheet.rows) == 1
    ((name, cells),) = sheet.rows
    best = next(label for label in entries if label != name)
    means = {label: 100 * entry.step_stat(2, lambda s: s.all).mean for label, entry in entries.items()}
    less, low, high = (cell.mean for cell in cells[-3:])
    assert less == pytest.approx(means[name] - means[best]) and less <= 0
    assert low <= less <= high


def test_runs_on_other_images_or_without_counts_are_not_paired(make_run) -> None:
    runs = [with_counts(make_run("caf")), make_run("mib")]
    comparison = compare(runs)
    assert paired_sheet(comparison, {entry.label: entry for entry in comparison.entries}) is None
    with_counts(runs[1], names="others")
    sheet = paired_sheet(comparison, {entry.label: entry for entry in comparison.entries})
    assert sheet is not None and np.isnan([cell.mean for cell in sheet.rows[0][1]]).all()
