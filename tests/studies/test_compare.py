"""Comparing methods: which run and in which order, nothing twice, and what is refused."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from short_runs import SHORT

from segue.core import plugins
from segue.core.config import RunConfig
from segue.core.errors import UserError
from segue.core.records import read_run
from segue.core.remarks import read_remarks
from segue.engine.interrupt import Interrupted
from segue.studies import pool as grid

HERE = ("compare", "--on", "scenes", "--split", "2-1")
FOLDER = "out/scenes-2-1-overlapped"
METHOD = """
from dataclasses import dataclass
from segue.losses import cross_entropy
from segue.methods.base import About, BenchmarkValues, Method, plain_start

@dataclass(frozen=True)
class Config:
    pass

class Mine(Method):
    Config = Config
    about = About("mine", "a test", 2020)
    benchmark_values = ()

    def losses(self, batch):
        return {"ce": cross_entropy(self.model(batch.images).logits, batch.labels)}

METHOD = Mine
"""


def own_method(path: Path, old: str = "", new: str = "") -> Path:
    assert old in METHOD
    path.write_text(METHOD.replace(old, new, 1))
    return path


def rows(text: str) -> dict[str, list[str]]:
    """The cells of each method in a printed table."""
    lines = [line.split() for line in text.splitlines()]
    rule = next(index for index, line in enumerate(lines) if line and set(line[0]) == {"─"})
    end = lines.index([], rule)
    return {line[0]: line[1:] for line in lines[rule + 1 : end]}


def test_methods_are_run_once_shown_and_never_run_again(segue, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    out, page = tmp_path / "out", tmp_path / "page.md"
    words = (*HERE, "--methods", "joint, finetune", "--seeds", "2", "--out", out, "--page", page, *SHORT)
    code, first, error = segue(*words)
    assert code == 0 and error.startswith("Next: segue ")
    folders = [f"{FOLDER}/{name}" for name in ("finetune-s0", "finetune-s1", "joint-s0", "joint-s1")]
    assert segue.runs == folders and "Runs to do: 4; done: 0" in first
    assert [read_run(tmp_path / folder).steps[0].seed for folder in folders] == [0, 1, 0, 1]
    found = rows(first)
    assert list(found) == ["finetune", "joint"] and found["joint"][6] == "-"
    assert len(found["finetune"]) == 4 * 2 + 2 and "Methods: scenes, split 2-1" in first
    assert (
        "`segue compare --on scenes --split 2-1 --methods joint,finetune --seeds 2 --out" in page.read_text()
    )
    shown = next(line for line in page.read_text().splitlines() if line.startswith("| finetune |"))
    assert " ".join(shown.replace("|", "").split()).replace("± ", "±").split() == [
        "finetune",
        *found["finetune"],
    ]

    # again: nothing is run, not even without checkpoints
    for folder in folders:
        shutil.rmtree(tmp_path / folder / "checkpoints")
    with monkeypatch.context() as patch:
        patch.setattr(
            "segue.studies.missing.run_all", lambda jobs, *_, **__: pytest.fail(f"to be run: {jobs}")
        )
        before = page.read_text()
        page.unlink()
        code, second, _ = segue(*words)
    assert code == 0 and "Runs to do" not in second and rows(second) == found and page.read_text() == before

    # a run that is not finished is run again, and only that one
    (tmp_path / folders[1] / "steps" / "1.json").unlink()
    code, third, _ = segue(*words)
    assert code == 0 and segue.runs == [folders[1]] and "Runs to do: 1; done: 3." in third

    # another recipe in their place is refused before anything is run
    code, _, error = segue(*words, "optim.lr_next=0.5")
    assert code == 2 and segue.runs == [] and "was started with another recipe" in error and "--out" in error

    # its runs are runs like others
    code, report, _ = segue("report", *(tmp_path / name for name in folders), "--out", tmp_path / "r.html")
    assert code == 0 and "step 1" in report and (tmp_path / "r.html").is_file()


@pytest.fixture
def listed(monkeypatch) -> dict[Path, RunConfig]:
    """The runs of the last comparison in the order of its rows; none is run."""
    plan: dict[Path, RunConfig] = {}
    monkeypatch.setattr("segue.studies.compare.run_missing", lambda asked, *_: plan.update(asked))
    return plan


def test_rows_stand_in_the_order_of_their_years(segue, tmp_path, listed):
    early, late = (
        own_method(tmp_path / f"{name}.py", "2020", year)
        for name, year in (("zero", "2015"), ("fresh", "2021"))
    )
    names = f"{late},joint,caf,{early},mib,finetune,mib"
    assert segue(*HERE, "--methods", names, "--seeds", "2", "--out", tmp_path / "out")[0] == 0
    order = ("finetune", "zero", "mib", "fresh", "caf", "joint")
    expected = [f"{FOLDER}/{name}-s{seed}" for name in order for seed in (0, 1)]
    assert [place.relative_to(tmp_path).as_posix() for place in listed] == expected
    assert [recipe.method.name for recipe in listed.values()][2:4] == [str(early)] * 2
    assert [recipe.train.seed for recipe in listed.values()] == [0, 1] * 6


def test_all_are_the_methods_that_there_are_and_those_named_besides(segue, tmp_path, planned):
    mine = own_method(tmp_path / "mine.py")
    options = ("--mode", "disjoint", "--out", tmp_path)
    assert segue(*HERE, *options, "train.epochs=3")[0] == 0
    found = [job.config.method.name for job in planned]
    assert sorted(found) == plugins.names("method") and found[-1] == "joint"
    kinds = [plugins.find("method", name) for name in found[:-1]]
    starts = [kind.start(job.config.method.params) for kind, job in zip(kinds, planned[:-1], strict=True)]
    givers = [not start.model and start.gathered is not None for start in starts]
    assert givers == sorted(givers, reverse=True), "first those whose step 0 serves others too"
    for giving in (True, False):
        years = [x.about.year for x, gives in zip(kinds, givers, strict=True) if gives == giving]
        years = years if giving else years[1:]
        assert years == sorted(years), "the lower bound, then by years"
    assert {job.config.train.epochs for job in planned} == {3}, "settings apply to all"
    assert {job.config.scenario.mode for job in planned} == {"disjoint"}
    assert {job.folder.parent.name for job in planned} == {"scenes-2-1-disjoint"}
    planned.clear()
    assert segue(*HERE, *options, "--methods", f"all,{mine}")[0] == 0
    assert sorted(job.config.method.name for job in planned) == sorted([*found, str(mine)])


def test_method_that_fails_does_not_take_the_others_with_it(segue, tmp_path, monkeypatch):
    real, tried = grid.run, []

    def diverging(config, folder, *rest) -> None:
        tried.append(folder.name)
        if config.method.name == "mib":
            raise UserError("The loss is not finite.")
        real(config, folder, *rest)

    monkeypatch.setattr(grid, "run", diverging)
    page = tmp_path / "page.md"
    words = (*HERE, "--methods", "finetune,mib,joint", "--out", tmp_path / "out", "--page", page, *SHORT)
    code, text, error = segue(*words)
    assert tried == ["finetune-s0", "mib-s0", "joint-s0"]
    assert code == 2 and "mib-s0: The loss is not finite." in error
    assert rows(text)["mib"] == ["*", *"------"]
    assert "mib (1 of 1)" in text and "\nfinetune  " in text
    assert not page.exists()
    # nothing to show yet is no second error
    code, text, error = segue(*HERE, "--methods", "mib", "--out", tmp_path / "other", *SHORT)
    assert code == 2 and "mib-s0: The loss is not finite." in error and "Methods:" not in text


def test_ctrl_c_keeps_what_is_done(segue, tmp_path, monkeypatch):
    counted = grid.run

    def stopped(config, folder, *rest) -> None:
        if config.method.name == "joint":
            raise Interrupted
        counted(config, folder, *rest)

    words = (*HERE, "--methods", "finetune,joint", "--out", tmp_path / "out", *SHORT)
    with monkeypatch.context() as patch:
        patch.setattr(grid, "run", stopped)
        code, _, error = segue(*words)
    assert code == 130 and "all is saved" in error
    assert segue(*words)[0] == 0 and segue.runs == [f"{FOLDER}/joint-s0"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["method.params.kd_weight=3"], "'method.params.kd_weight=3' belongs to one method"),
        (["train.epochs=1", "method={name: mib}"], "'method={name: mib}' belongs to one method"),
        (["train.seed=3"], "'train.seed' is not free here: --seeds 3 runs"),
        (["train={seed: 3}"], "'train.seed' is not free here"),
        (["--methods", "mib,fintune"], "There is no method 'fintune'. Did you mean 'finetune'?"),
        (["--methods", "mib,nowhere/mine.py"], "nowhere/mine.py"),
        (["--methods", ","], "Which methods? Name some of: "),
        (["--methods", "mib", "train.epoch=1"], "Unknown key 'train.epoch'. Did you mean 'train.epochs'?"),
        (["--methods", "mib", "--mode", "overlap"], "'scenario.mode' is 'overlap'"),
        (["--methods", "mib", "--split", "12-2"], "12"),
        (["--seeds", "0"], "--seeds"),
    ],
)
def test_wrong_words_are_refused(segue, tmp_path, planned, words, message):
    code, _, error = segue(*HERE, *words, "--out", tmp_path / "out")
    assert code == 2 and message in " ".join(error.split()) and planned == []
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("option", ["--on", "--split"])
def test_data_set_and_split_have_to_be_said(segue, tmp_path, option):
    words = {"--on": "scenes", "--split": "2-1"}
    del words[option]
    code, _, error = segue("compare", *(word for pair in words.items() for word in pair))
    assert code == 2 and option in error


def test_methods_that_cannot_share_a_table_are_refused_before_anything_is_run(segue, tmp_path, planned):
    mine = own_method(tmp_path / "mib.py")
    code, _, error = segue(*HERE, "--methods", f"mib,{mine}", "--out", tmp_path / "out")
    assert code == 2 and f"mib and {mine} would share a row" in error
    special = 'benchmark_values = (BenchmarkValues("scenes", None, {"scenario": {"void": "ignore"}}),)'
    other = own_method(tmp_path / "other.py", "benchmark_values = ()", special)
    code, _, error = segue(*HERE, "--methods", f"mib,{other}", "--out", tmp_path / "out")
    assert code == 2 and "mib and other cannot stand in one table: scenario.void: 'background' ->" in error
    for there in ("title =", 'about = "mine"; title ='):
        nameless = own_method(tmp_path / "nameless.py", "about =", there)
        code, _, error = segue(*HERE, "--methods", str(nameless), "--out", tmp_path / "out")
        assert code == 2 and "nameless.py: the class Mine lacks about" in error
    assert planned == [] and not (tmp_path / "out").exists()


def test_remarks_stand_on_the_page(segue, tmp_path):
    remarks, page = tmp_path / FOLDER / "remarks.yaml", tmp_path / "page.md"
    remarks.parent.mkdir(parents=True)
    good = (
        "paper: {setting: VOC 15-1 overlapped, rows: {finetune: [4.6, 1.8, null], mib: [35.1, 13.5, 29.7]}}\n"
        "remarks: {finetune: Forgets all., mib: Not shown., mine: My own.}\n"
    )
    mine = own_method(tmp_path / "mine.py")
    words = (*HERE, "--methods", f"{mine},finetune", "--out", tmp_path / "out", "--page", page, *SHORT)
    for wrong, message in (
        (good.replace("mib: N", "mob: N"), "There is no method 'mob'. Did you mean 'mib'?"),
        (good.replace("remarks:", "remark:"), "Unknown key 'remark'. Did you mean 'remarks'?"),
    ):
        remarks.write_text(wrong)
        code, _, error = segue(*words)
        assert code == 2 and f"{remarks}: {message}" in error and segue.runs == [] and not page.exists()
    remarks.write_text(good)
    assert segue(*words)[0] == 0 and len(segue.runs) == 2
    text = page.read_text()
    assert text.startswith("# Methods on scenes 2-1 overlapped\n\nMade from the records by `segue compare ")
    assert "| ours old | ours new | ours all | paper old | paper new | paper all |" in text
    assert " | 4.6 | 1.8 | - |\n| mine | " in text and "35.1" not in text, "mib is not compared here"
    assert "Paper: VOC 15-1 overlapped" in text
    assert "\n\n* **finetune**: Forgets all.\n* **mine**: My own.\n" in text
    remarks.unlink()
    assert segue(*words)[0] == 0 and "paper" not in page.read_text() and "Forgets" not in page.read_text()


def test_changed_method_file_is_not_taken_for_done(segue, tmp_path):
    mine = own_method(tmp_path / "mine.py")
    words = (*HERE, "--methods", mine, "--out", tmp_path / "out", *SHORT)
    assert segue(*words)[0] == 0 and len(segue.runs) == 1
    assert segue(*words)[0] == 0 and segue.runs == []
    own_method(mine, '"ce": cross', '"ce": 2 * cross')
    code, _, error = segue(*words)
    assert code == 2 and segue.runs == [] and "method file" in error and "--out" in error


@pytest.mark.parametrize("verb", [HERE, ("ablate", "layers", "--on", "scenes")])
def test_page_that_is_a_folder_is_refused_before_anything_is_run(verb, segue, tmp_path, planned):
    code, _, error = segue(*verb, "--out", tmp_path / "out", "--page", tmp_path, *SHORT)
    assert code == 2 and planned == [] and "is a folder" in error


def test_unknown_device_is_refused_before_anything_is_run(segue, tmp_path, planned):
    code, shown, _ = segue(*HERE, "--out", tmp_path / "out", "--device", "nope", *SHORT)
    assert code == 2 and planned == [] and "Runs to do" not in shown


@pytest.mark.data
@pytest.mark.skipif(not os.environ.get("SEGUE_PAPER_TABLES"), reason="SEGUE_PAPER_TABLES names no file")
@pytest.mark.parametrize(
    ("folder", "setting"),
    [
        ("compare/scenes-4-2-overlapped", "15-1"),
        ("voc256/compare/voc-15-1-overlapped", "15-1"),
        ("voc256/compare/voc-15-5-overlapped", "15-5"),
    ],
)
def test_numbers_beside_ours_are_those_of_the_paper(folder, setting):
    names = {"finetune": "FT", "lwf_mc": "LwF-MC", "mib": "MiB", "lwf": "LwF", "plop": "PLOP*", "caf": "Ours"}
    tables = json.loads(Path(os.environ["SEGUE_PAPER_TABLES"]).read_text(encoding="utf-8"))["table1_voc"][
        "rows"
    ]
    stored = Path(__file__).parents[2] / "results" / folder / "remarks.yaml"
    paper = read_remarks(stored, plugins.names("method")).paper
    assert paper is not None and len(paper.rows) == 12
    assert paper.setting.startswith(f"VOC {setting} overlapped")
    for method, numbers in paper.rows.items():
        row = tables[names.get(method, method.upper() if len(method) < 5 else method.title())]
        assert list(numbers) == list(row[f"{setting}/overlapped"].values()), method
