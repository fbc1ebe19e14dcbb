"""`make gpu-check` on the CPU, as a rehearsal: every check runs, and a broken one is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import gpu_check


def test_every_check_but_that_of_two_processes_runs_on_the_cpu(tmp_path: Path) -> None:
    names = [name for name in gpu_check.CHECKS if name != "two processes"]
    assert gpu_check.check("cpu", tmp_path / "check.json", ["mib", "caf", "acil"], names)
    document = json.loads((tmp_path / "check.json").read_text())
    assert document["ok"] and list(document["checks"]) == names
    assert set(document["checks"]["parity"]["largest relative difference"].values()) == {0.0}
    assert document["checks"]["throughput"]["images per second"]["mib"] > 0


@pytest.mark.slow
def test_two_processes_agree_with_one(tmp_path: Path) -> None:
    assert gpu_check.check("cpu", None, ["mib"], ["two processes"])


def test_a_check_that_raises_has_failed(tmp_path: Path) -> None:
    assert not gpu_check.check("cpu", tmp_path / "check.json", ["nothing"], ["parity", "throughput"])
    document = json.loads((tmp_path / "check.json").read_text())
    assert "nothing" in document["checks"]["parity"]["error"] and document["checks"]["throughput"]["ok"]
