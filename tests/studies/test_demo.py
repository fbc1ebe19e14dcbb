"""The demonstration runs to its end, goes on after a stop, and starts anew when it is finished."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from segue.core.records import read_run
from segue.studies import demo as demo_module
from segue.studies import pool as grid
from segue.studies.demo import METHODS, demo

WORDS = ["data.train=60", "data.test=12", "data.size=32", "train.crop=32", "train.epochs=1", "eval.samples=1"]


@pytest.fixture(autouse=True)
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "available_cores", lambda: 1)


def test_demo_leaves_table_page_and_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), width=80)
    page = demo(tmp_path, [*WORDS, "train.epochs_next=1"], "cpu", console)
    said = console.file.getvalue()
    assert all(name in said for name in (*METHODS, "forgetting", "s in all"))
    assert max(map(len, said.splitlines())) <= 80 or str(tmp_path) in said
    html = page.read_text()
    assert html.count("data:image/png") >= 12 and all(name in html for name in METHODS)
    assert 'href="grown-run/verdict.html"' in html and (tmp_path / "grown-run" / "verdict.html").is_file()
    for name in METHODS:
        assert read_run(tmp_path / name).finished
        last = 0 if name == "joint" else 2
        assert (tmp_path / name / "samples" / "0" / f"step{last}.png").is_file()

    times = {name: (tmp_path / name / "steps" / "0.json").stat().st_mtime_ns for name in METHODS}
    page.unlink()  # stopped just before the page was written
    demo(tmp_path, [*WORDS, "train.epochs_next=1"], "cpu", console)
    assert times == {name: (tmp_path / name / "steps" / "0.json").stat().st_mtime_ns for name in METHODS}

    jobs = []
    monkeypatch.setattr(demo_module, "run_all", lambda *arguments: jobs.extend(arguments[0]) or [])
    monkeypatch.setattr(demo_module, "results_table", lambda runs: "")
    monkeypatch.setattr(demo_module, "render", lambda runs, beside: "")
    monkeypatch.setattr(demo_module, "second_act", lambda *arguments: None)
    demo(tmp_path, [*WORDS, "train.epochs_next=1"], "cpu", console)
    assert [job.overwrite for job in jobs] == [True] * 4, "a finished demo starts anew"
