"""`segue serve` as a process: what it says, how it stops, and what it refuses to start with."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest
from serving import encoded, photo

from segue.core.config import ModelConfig
from segue.deploy.model import Model
from segue.models.segmenter import Segmenter


@pytest.fixture
def model(tmp_path: Path) -> Path:
    network = Segmenter(ModelConfig(backbone="tiny", head="tiny", output_stride=8))
    network.classifier.grow(3, balanced=False)
    Model(network, ("background", "a", "b")).save(tmp_path / "model")
    return tmp_path / "model"


def test_it_says_where_it_is_and_finishes_what_is_under_way(model: Path):
    command = [sys.executable, "-m", "segue", "serve", str(model), "--port", "0", "--device", "cpu"]
    environment = {**os.environ, "SEGUE_TOKEN": "secret", "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    said = process.stdout.readline() + process.stdout.readline()
    address = re.search(r"http://127\.0\.0\.1:\d+", said)[0]
    assert "model" in said and f"-F file=@photo.jpg {address}/predict" in said and "secret" not in said

    # the image is sent while the server is told to stop: it has come in part
    answers = []
    content = encoded(photo(64, 64))
    half = threading.Event()

    def body():
        yield content[:50]
        half.set()
        stopping.wait(10)
        yield content[50:]

    stopping = threading.Event()
    headers = {
        "Authorization": "Bearer secret",
        "Content-Length": str(len(content)),
        "Content-Type": "image/png",
    }
    request = urllib.request.Request(f"{address}/predict", data=body(), headers=headers)

    def ask() -> None:
        with urllib.request.urlopen(request, timeout=20) as answer:
            answers.append(answer.read()[:4])

    until_started(address)
    thread = threading.Thread(target=ask)
    thread.start()
    assert half.wait(10)
    until_under_way(address)
    process.send_signal(signal.SIGINT)
    stopping.set()
    thread.join(20)
    assert process.wait(20) == 130
    assert answers == [b"\x89PNG"]
    assert "Traceback" not in process.stderr.read()
    process.stdout.close()
    process.stderr.close()


def until_started(address: str) -> None:
    for _ in range(200):
        try:
            urllib.request.urlopen(f"{address}/health", timeout=10).close()
            return
        except OSError:
            threading.Event().wait(0.05)
    pytest.fail("it does not answer")


def until_under_way(address: str) -> None:
    """A request that came after the other's head was read."""
    urllib.request.urlopen(f"{address}/health", timeout=10).close()


def test_port_that_is_taken(segue, model: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, _, error = segue("serve", model, "--port", taken.getsockname()[1])
    assert code == 2 and "--port" in error


@pytest.mark.parametrize("words", [("--host", "no.such.host.invalid"), ("--host", "8.8.8.8")])
def test_address_that_is_not_here(segue, model: Path, words):
    code, _, error = segue("serve", model, *words, "--port", "0")
    assert code == 2 and words[1] in error


def test_no_model(segue, tmp_path: Path):
    code, _, error = segue("serve", tmp_path / "nothing", "--port", "0")
    assert code == 2 and "There is no model" in error


def test_other_hosts_without_a_token_give_a_remark(segue, model: Path, monkeypatch):
    monkeypatch.setattr("segue.deploy.serve.run.serve", lambda *_: None)
    for words, remark in (
        ((), False),
        (("--host", "0.0.0.0"), True),
        (("--host", "0.0.0.0", "--token", "x"), False),
    ):
        code, said, _ = segue("serve", model, "--port", "0", "--device", "cpu", *words)
        assert code == 0 and ("Remark" in said) is remark


def test_without_the_extra(segue, model: Path, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "segue.deploy.serve.run", raising=False)
    code, _, error = segue("serve", model)
    assert code == 2 and "pip install 'segue[serve]'" in error
