"""The benchmark of exported models: every way to run one is timed, and the page shows what was stored."""

from __future__ import annotations

import io
import json

import pytest
import torch
from rich.console import Console

from benchmarks import export as bench
from benchmarks.page import SECTIONS
from segue.deploy.export import formats

for package in ("onnx", "onnxscript", "onnxruntime"):
    pytest.importorskip(package)

WORDS = ("data.size=32", "data.train=40", "data.test=12", "train.crop=32", "train.batch_size=8")


def test_figures_are_shown_and_stored(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "WORDS", (*bench.WORDS, *WORDS, "train.epochs=1", "train.epochs_next=1"))
    monkeypatch.setattr(torch, "compile", lambda module: module)  # a compiler takes half a minute
    monkeypatch.setattr(formats, "_by_dynamo", None)  # the older exporter takes a blink
    text, file = io.StringIO(), tmp_path / "bench.json"
    console = Console(file=text, width=200)
    row, family = bench.bench_export(["caf"], [], ["own U-Net"], 1, file, console)
    assert row.what == "caf" and "GrowingClassifier" in row.network and "older exporter" in row.remark
    assert row.changed <= 0.001 and 0 < row.agreement <= 1 and row.miou is not None
    assert family.miou is None and family.largest < 1e-3 * family.scale and "M weights" in family.network
    for each in (row, family):
        assert min(each.eager, each.compiled, each.onnx, each.int8) > 0
    record = json.loads(file.read_text())
    assert record["rows"][0]["what"] == "caf" and "caf" in text.getvalue()
    lines = SECTIONS["export"](record)
    assert any(line.startswith("| own U-Net |") for line in lines)
    assert any(line.startswith("- caf: ") and "older exporter" in line for line in lines)


def test_a_stopped_measurement_goes_on(tmp_path, monkeypatch):
    asked = []

    def measured(name: str, rounds: int) -> bench.Row:
        asked.append(name)
        if name == "second" and asked.count(name) == 1:
            raise KeyboardInterrupt
        return bench.Row(name, "", 8, 0.0, 1.0, 0.0, 1.0, None, *[float(rounds)] * 4)

    monkeypatch.setattr(bench, "_family", measured)
    console, file = Console(file=io.StringIO()), tmp_path / "b.json"
    for rounds in (1, 1, 2):  # other rounds: another measurement
        try:
            bench.bench_export([], [], ["first", "second"], rounds, file, console)
        except KeyboardInterrupt:
            assert not file.exists()
    assert asked == ["first", "second", "second", "first", "second"]
    assert [path.name for path in tmp_path.iterdir()] == ["b.json"]


def test_a_network_that_cannot_be_compiled_is_a_remark(monkeypatch):
    def broken(_: object) -> None:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(torch, "compile", lambda module: broken)
    monkeypatch.setattr(formats, "_by_dynamo", None)
    row = bench._family("own U-Net", 1)
    assert row.compiled is None and "no such kernel" in row.remark and row.eager > 0
