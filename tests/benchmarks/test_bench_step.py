"""The benchmark of an iteration: its subjects do what they are named for, and the ratios are theirs."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from benchmarks import step as bench
from benchmarks.caf import Case, incremental_method, random_batch
from segue.core.config import ModelConfig
from segue.models._speed.fold import unlink_norms

CPU = torch.device("cpu")
TINY = Case(
    "tiny, 32 px", ModelConfig(backbone="tiny", head="tiny", output_stride=8), 32, 2, classes=4, split="3-1"
)


def test_plain_mib_has_the_losses_of_mib() -> None:
    batch = random_batch(TINY, CPU)
    found = {}
    for name in ("mib", bench.PlainMiB):
        found[name] = incremental_method(name, {}, TINY, CPU).method(batch)
    ours, plain = found.values()
    assert ours.keys() == plain.keys()
    for key, value in plain.items():
        torch.testing.assert_close(ours[key], value, rtol=1e-4, atol=1e-6)


def test_plain_mib_has_norms_as_they_are() -> None:
    method = incremental_method(bench.PlainMiB, {}, TINY, CPU).method
    before = [module.__dict__.get("forward") for module in method.model.modules()]
    unlink_norms(method.model)
    assert before == [None] * len(before)


def test_rows_are_shown_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "NETWORKS", {"tiny": TINY})
    monkeypatch.setattr(bench, "CHANNELS", {5: (4, "3-1"), 7: (6, "3-3")})
    # in this process, which has grown already: a process of its own takes seconds to start
    monkeypatch.setattr(bench, "in_own_process", lambda function, *each: function(*each) + 2**20)
    text = io.StringIO()
    rows = bench.bench_step(["tiny"], 2, "cpu", tmp_path / "step.json", Console(file=text, width=120))
    assert [row.channels for row in rows] == [5, 7]
    for row in rows:
        assert set(row.seconds) == set(row.memory) == set(bench.SETUPS)
        assert all(value > 0 for value in row.seconds.values())
        assert row.caf_by_floor > 0 and row.mib_faster > 0
        assert f"{row.caf_by_floor:.2f}" in text.getvalue()
    record = json.loads((tmp_path / "step.json").read_text())
    assert record["format"] == bench.FORMAT
    assert record["rows"][1]["caf_by_floor"] == rows[1].caf_by_floor
    monkeypatch.setattr(bench, "NETWORKS", {"other": TINY})
    bench.bench_step(["other"], 1, "cpu", tmp_path / "step.json", Console(file=text, width=120))
    kept = json.loads((tmp_path / "step.json").read_text())["rows"]
    assert [(row["network"], row["rounds"]) for row in kept] == [("tiny", 2)] * 2 + [("other", 1)] * 2


def test_ratios_are_those_of_the_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {
        "floor": 1.0,
        "mib plain": 6.0,
        "mib": 2.0,
        "caf fused": 4.0,
        "caf alone": 2.0,
        "caf checkpointed": 5.0,
    }
    monkeypatch.setattr(bench, "in_turns", lambda calls, rounds, device: [[t, t] for t in times.values()])
    monkeypatch.setattr(bench, "in_own_process", lambda _, case, subject, device: times[subject] * 2**20)
    row = bench._row("tiny", replace(TINY, batch=2), 2, "cpu")
    assert (row.caf_by_floor, row.fused_by_floor, row.mib_by_floor) == (3, 4, 2)
    assert (row.mib_faster, row.caf_faster, row.mib_leaner, row.caf_leaner) == (3, 2, 3, 1.5)
    assert list(bench.SETUPS) == list(times)
