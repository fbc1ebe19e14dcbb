"""`make gpu-check` without a GPU: the whole of it on the CPU, most of it on a device that is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from accelerator import Accelerator, device

from benchmarks import gpu_check
from segue.engine.checkpoint import load_tree

DEVICE = device()
"""asked for when tests are collected: see there"""


def test_the_whole_check_runs_on_the_cpu(tmp_path: Path) -> None:
    assert gpu_check.check("cpu", tmp_path / "check.json", ["mib", "acil"], list(gpu_check.CHECKS))
    document = json.loads((tmp_path / "check.json").read_text())
    assert document["ok"] and list(document["checks"]) == list(gpu_check.CHECKS)
    assert set(document["checks"]["parity"]["largest relative difference"].values()) == {0.0}
    resumed = document["checks"]["resume"]["largest relative difference"]
    assert all(each == {"resumed": 0.0, "repeated": 0.0} for each in resumed.values())
    assert document["checks"]["two processes"]["largest relative difference of a loss"] > 0, "not synced here"
    assert document["checks"]["throughput"]["images per second"]["mib"] > 0


def test_the_check_itself_mixes_no_devices(tmp_path: Path) -> None:
    names = ["parity", "precisions", "resume"]  # Gloo knows no such device, and there it has no speed
    with Accelerator():
        assert gpu_check.check(str(DEVICE), tmp_path / "check.json", ["caf"], names)
    document = json.loads((tmp_path / "check.json").read_text())
    assert document["ok"] and list(document["checks"]) == names


def test_a_check_that_raises_has_failed(tmp_path: Path) -> None:
    assert not gpu_check.check("cpu", tmp_path / "check.json", ["nothing"], ["parity", "throughput"])
    document = json.loads((tmp_path / "check.json").read_text())
    assert "nothing" in document["checks"]["parity"]["error"] and document["checks"]["throughput"]["ok"]


def test_a_resume_that_forgets_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_momentum(path: Path) -> dict:
        tree = load_tree(path)
        tree.get("optimizer", {})["state"] = {}
        return tree

    assert gpu_check.resumes(torch.device("cpu"), ["finetune"])["ok"]
    monkeypatch.setattr(gpu_check, "load_tree", without_momentum)
    assert gpu_check.resumes(torch.device("cpu"), ["finetune"])["differ"] == ["finetune"]


def test_numbers_that_are_not_finite_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    update = gpu_check.update

    def overflowing(session, batch, clip, train):
        terms = update(session, batch, clip, train)
        return {name: value / (train.precision != "fp16") for name, value in terms.items()}

    monkeypatch.setattr(gpu_check, "update", overflowing)
    assert gpu_check.precisions(torch.device("cpu"), ["finetune"])["not finite"] == ["finetune in fp16"]
