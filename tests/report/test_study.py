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
from segue.report.study import read_runs, study_csv, study_ranks


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


DISJOINT = {"mode": "disjoint", "void": "background", "future": "ignore"}


def test_rows_of_one_method_have_the_names_of_their_study(make_run, tmp_path: Path) -> None:
    """Of any other folder the name stands in brackets."""
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
    names = ("caf-s0", "caf-similar-s0", "plain-s0", "mine")
    runs = [make_run("caf", name=name, params={"kd_weight": place}) for place, name in enumerate(names)]
    runs += [make_run("mib", name=f"{place}/mib-s0", params={"place": place}) for place in ("a", "b")]
    labels = [entry.label for entry in compare(runs).entries]
    assert labels == ["caf", "caf-similar", "caf (plain)", "caf (mine)", "mib (a/mib-s0)", "mib (b/mib-s0)"]


def test_a_row_has_the_same_name_in_every_setting(make_run, tmp_path: Path) -> None:
    """Also where it is the only one of its method."""
    (tmp_path / "other").mkdir()
    runs = [
        make_run("caf", name="caf-s0"),
        make_run("caf", name="caf-similar-s0", params={"start": "similar"}),
    ]
    runs.append(make_run("caf", name="other/caf-similar-s0", policy=DISJOINT, params={"start": "similar"}))
    rows = csv.DictReader(io.StringIO(study_csv(runs)))
    assert [row["method"] for row in rows] == ["caf", "caf-similar", "caf-similar"]


def test_a_summary_as_a_picture_has_mean_ranks(make_run, tmp_path: Path) -> None:
    methods = ("caf", "mib", "finetune", "joint")
    runs = [make_run(method, seed=seed) for seed, method in enumerate(methods)]
    with pytest.raises(UserError, match="at least two settings, and three methods"):
        write_report(runs, tmp_path / "ranks.svg", summary=True)
    (tmp_path / "other").mkdir()
    runs += [
        make_run(method, f"other/{method}", seed=seed, policy=DISJOINT) for seed, method in enumerate(methods)
    ]
    with pytest.raises(UserError, match=r"a summary is written as \.csv, \.svg"):
        write_report(runs, tmp_path / "ranks.html", summary=True)
    text = write_report(runs, tmp_path / "ranks.svg", summary=True).read_text()
    assert "mean rank over 2 settings" in text and "joint" not in text
    means = {run.method: compare([run]).entries[0].step_stat(2, lambda s: s.all).mean for run in runs[:3]}
    best_first = sorted(means, key=lambda method: -means[method])
    chart = study_ranks(runs)
    assert chart is not None
    assert ", ".join(f"{method} {rank}.0" for rank, method in enumerate(best_first, 1)) in chart.alt
    (tmp_path / "again").mkdir()
    runs += [make_run("caf", f"again/{name}", params={"kd_weight": 2}) for name in ("caf-s0", "other-s0")]
    runs += [make_run("caf", "caf-s0", params={"kd_weight": 3})]
    with pytest.raises(UserError, match="Two rows of shapes are called caf: ranks need one of each"):
        study_ranks(runs)


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
