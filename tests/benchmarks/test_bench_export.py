"""The benchmark of exported models: every way to run one is timed and stored."""

from __future__ import annotations

import io
import json

import pytest
import torch
from rich.console import Console

from benchmarks import export as bench
from segue.deploy.export import formats

for package in ("onnx", "onnxscript", "onnxruntime"):
    pytest.importorskip(package)

WORDS = ("data.size=32", "data.train=40", "data.test=12", "train.crop=32", "train.batch_size=8")


def test_figures_are_shown_and_stored(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "WORDS", (*bench.WORDS, *WORDS, "train.epochs=1", "train.epochs_next=1"))
    monkeypatch.setattr(torch, "compile", lambda module: module)  # a compiler takes half a minute
    monkeypatch.setattr(formats, "_by_dynamo", None)  # the older exporter takes a blink
    text, file = io.StringIO(), tmp_path / "bench.json"
    (row,) = bench.bench_export(["caf"], [], 1, file, Console(file=text, width=200))
    assert row.what == "caf" and "GrowingClassifier" in row.network and "older exporter" in row.remark
    assert row.changed <= 0.001 and 0 < row.agreement <= 1 and row.miou is not None
    assert min(row.eager, row.compiled, row.onnx, row.int8) > 0
    record = json.loads(file.read_text())
    assert record["rows"][0]["what"] == "caf" and "caf" in text.getvalue()
