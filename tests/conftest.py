"""Tests leave the user's cache alone, run on one thread, and hear Ctrl-C, wherever they are started from."""

import signal
from pathlib import Path

import pytest
import torch


@pytest.fixture(autouse=True)
def private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEGUE_CACHE", str(tmp_path / "cache"))


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def ctrl_c_is_heard() -> None:
    """A shell starts background jobs with Ctrl-C ignored, and what is ignored is inherited."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
