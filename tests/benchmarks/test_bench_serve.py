"""The benchmark of servers: it counts what clients see, and its plain servers give the same masks."""

from __future__ import annotations

import io
import json
from contextlib import contextmanager
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from rich.console import Console
from serving import bright, encoded, models, photo, serving

from benchmarks import serve as bench
from benchmarks.http_clients import load
from benchmarks.page import SECTIONS
from benchmarks.plain_server import plain_app
from segue.deploy.serve.app import create_app
from segue.deploy.serve.limits import Limits


def test_clients_count_answers_and_refusals():
    content = encoded(photo())
    with serving(models(bright())) as address:
        found = load(address, content, clients=4, seconds=0.3)
    assert found.seconds and not found.refused and not found.errors and found.period >= 0.3
    with serving(models(bright()), Limits(bodies=10)) as address:
        refused = load(address, content, clients=2, seconds=0.1)
    assert refused.refused and not refused.seconds and not refused.errors
    with serving(models(bright())) as address:
        wrong = load(address, b"text", clients=1, seconds=0.05)
    assert set(wrong.errors) == {"422"}


@pytest.mark.parametrize("way", ["inline", "threads"])
def test_plain_server_gives_the_same_mask(way):
    content, model = encoded(photo()), bright()
    with TestClient(create_app(models(model))) as ours, TestClient(plain_app(model, way)) as plain:
        found = [
            bench.Image.open(io.BytesIO(one.post("/predict", content=content).content))
            for one in (ours, plain)
        ]
    assert found[0].tobytes() == found[1].tobytes()


def test_figures_of_all_servers_are_stored(monkeypatch, tmp_path: Path):
    """Servers in this process stand for those that `running` starts."""

    @contextmanager
    def here(*_: object):
        with serving(models(bright())) as address:
            yield [(address, type("This", (), {"pid": "self"}))] * len(bench.SERVERS)

    monkeypatch.setattr(bench, "running", here)
    text = Console(file=io.StringIO(), width=120)
    rows = bench.bench_serve(1.2, clients=2, turns=2, save=tmp_path / "b.json", side=16, console=text)
    stored = json.loads((tmp_path / "b.json").read_text())
    assert [row["what"] for row in stored["rows"]] == list(bench.SERVERS)
    speeds = [row.per_second for row in rows]
    assert stored["ratio"] == speeds[0] / max(speeds[1:3])
    assert stored["ratio_folded"] == speeds[0] / max(speeds[3:])
    assert rows[0].seconds > 1.5 * max(row.seconds for row in rows[1:])
    page = "\n".join(SECTIONS["serve"](stored))
    assert f"the network, is **{stored['ratio_folded']:.2f}x**" in page and page.count("folded, ") == 2
    for row in rows:
        assert row.requests and not row.errors and 0 < row.p50 <= row.p99 and len(row.memory) == 3
    assert "2 clients" in text.file.getvalue()
