"""The benchmark of the pixel losses: both sides agree, and what is shown and kept is what was measured."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path

import pytest
import torch
from rich.console import Console

from benchmarks import losses as bench
from segue.plan.dry_run import DryRun

CPU = torch.device("cpu")
SMALL = (bench.Maps(5, 3, batch=2, side=64), bench.Maps(9, 4, batch=2, side=64))


@pytest.mark.parametrize("name", bench.LOSSES)
def test_both_sides_give_the_same_value_and_gradient(name: str) -> None:
    maps = SMALL[0]
    given = maps.draw(CPU, 2, 64)
    found = []
    for loss in bench.LOSSES[name]:
        bench._call(loss, given)
        found.append((loss(*given), given[0].grad.clone()))
    (ours, gradient), (plain, expected) = found
    for a, b in zip(ours, plain, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=0)
    torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-8)


def test_rows_are_shown_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "CASES", SMALL)
    # a process of its own takes seconds to start
    monkeypatch.setattr(bench, "in_own_process", lambda _, maps, name, side, device: (1 + 3 * side) * 2**20)
    text = io.StringIO()
    rows = bench.bench_losses(1, "cpu", tmp_path / "losses.json", Console(file=text, width=120))
    assert [(row.channels, row.what) for row in rows] == [
        (m.channels, n) for m in SMALL for n in bench.LOSSES
    ]
    assert all(row.seconds > 0 and row.faster > 0 and (row.memory, row.leaner) == (1, 4) for row in rows)
    assert all(f"{row.faster:.1f}x" in text.getvalue() for row in rows)
    record = json.loads((tmp_path / "losses.json").read_text())
    assert record["format"] == bench.FORMAT and (record["batch"], record["side"]) == (2, 64)
    assert record["rows"][-1]["what"] == rows[-1].what and record["rows"][-1]["faster"] == rows[-1].faster


def allocated(side: int, maps: bench.Maps) -> int:
    """Bytes of the tensors that a call has at once beside its inputs, at most.

    Counted as they come and go: a process grows by pages, which the system hands out as it likes.
    """
    given = maps.draw(CPU, maps.batch, maps.side)
    with DryRun(large=math.inf) as count:  # computes all
        bench._call(bench.LOSSES["unbiased cross-entropy and distillation"][side], given)
    return count.peak


def test_full_resolution_is_never_allocated() -> None:
    maps = bench.Maps(21, 16, batch=4, side=256)
    full = 4 * 21 * 256 * 256 * 4
    assert allocated(1, maps) > 2 * full and allocated(0, maps) < full
