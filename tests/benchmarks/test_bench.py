"""The benchmark of CAF: what it measures on a network small enough for a test, and what it refuses."""

from __future__ import annotations

import io

import pytest
import torch
from rich.console import Console

from benchmarks import caf as bench
from benchmarks import measure
from benchmarks.__main__ import command
from segue.core.config import ModelConfig
from segue.core.errors import UserError

TINY = bench.Case(
    "tiny, 32 px", ModelConfig(backbone="tiny", head="tiny", output_stride=8), 32, 2, classes=4, split="3-1"
)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """One small case; its memory is measured in this process, since another takes seconds to start."""
    monkeypatch.setattr(bench, "CASES", {"tiny": TINY})
    monkeypatch.setattr(bench, "_memory", lambda *each: bench._peak(*each) / 2**20)


def test_four_rows_with_ratios_are_measured_and_shown(tiny):
    text = io.StringIO()
    found = bench.bench_caf(["tiny"], rounds=1, device="cpu", console=Console(file=text, width=100))
    assert list(found) == ["tiny"]
    rows = found["tiny"]
    assert [row.what for row in rows] == [
        "training iteration, with fusion",
        "training iteration, without fusion",
        "inference, skip against plain",
        "peak memory of training",
    ]
    assert [row.unit for row in rows] == ["s", "s", "s", "MiB"]
    for row in rows:
        assert row.plain > 0 and row.ours > 0 and row.ratio > 0
        assert row.what in text.getvalue() and f"{row.ratio:.2f}" in text.getvalue()
    assert "tiny, 32 px" in text.getvalue()
    assert rows[3].ratio == rows[3].ours / rows[3].plain and rows[3].plain > 20


def test_ratio_is_the_median_of_turns_without_the_first(monkeypatch):
    clock = [0.0]
    durations = {"plain": iter([50, 1, 2, 4]), "ours": iter([90, 3, 4, 20])}

    def spend(side: str) -> None:
        clock[0] += next(durations[side])

    monkeypatch.setattr(measure.time, "perf_counter", lambda: clock[0])
    calls = (lambda: spend("plain"), lambda: spend("ours"))
    found = bench._in_turns("x", *calls, rounds=3, device=torch.device("cpu"))
    assert (found.plain, found.ours, found.ratio) == (2, 4, 3)


def test_method_is_measured_in_its_second_step_with_the_settings_asked_for():
    session = bench.incremental_method("caf", {"kd_weight": 3.0}, TINY, torch.device("cpu"))
    method = session.method
    assert method.teacher is not None and method.config.kd_weight == 3.0 and method.training
    batch = bench.random_batch(TINY, torch.device("cpu"))
    assert batch.images.shape == (2, 3, 32, 32) and set(batch.labels.unique().tolist()) == {0, 4}
    assert method(batch).keys() == {"ce", "kd", "ad", "rehearsal"}


def test_cases_of_the_command_exist():
    assert list(bench.CASES) == ["resnet101", "small"]
    for case in bench.CASES.values():
        assert len(case.scenario) == 2


def test_unknown_case_is_refused():
    with pytest.raises(UserError, match=r"'smal'.*resnet101"):
        command("caf", case="smal")


def test_setting_that_would_change_nothing_is_refused(tiny):
    with pytest.raises(UserError, match=r"'train\.epochs=1' has no effect here"):
        bench.bench_caf(["tiny"], ["train.epochs=1"], device="cpu", console=Console(quiet=True))


def test_unknown_setting_is_refused_before_anything_is_measured(tiny):
    with pytest.raises(UserError, match=r"Unknown key 'method\.params\.kd_wieght'"):
        bench.bench_caf(["tiny"], ["method.params.kd_wieght=1"], device="cpu", console=Console(quiet=True))
