"""Tests leave the user's cache alone, run on one thread, and hear Ctrl-C, wherever they are started from."""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
import torch
from network_guard import guard


@pytest.fixture(autouse=True)
def private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEGUE_CACHE", str(tmp_path / "cache"))


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a test loads, trains or predicts with, nothing asks a hub, a tracker or a mirror."""
    guard(monkeypatch)


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recipes are those of a machine without a GPU, wherever tests run."""
    monkeypatch.setattr("segue.core.presets.cuda_gpu", lambda: None)


THREADS = int(os.environ.get("SEGUE_TEST_THREADS", "1"))
"""of each test process: more would take cores from tests that run beside it (`make test-portable` sets 2)"""


@pytest.fixture(autouse=True, scope="session")
def threads() -> None:
    torch.set_num_threads(THREADS)


DOUBLE = {"losses", "models", "methods"}
"""folders of tests that compare two ways to one number"""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """New tensors and models are float64 in some folders, and where `precision("float64")` marks a test.

    In single precision rounding decides what is compared, and how far depends on the processor: an activation
    that is zero up to rounding may be on either side of a ReLU's kink, where its gradient jumps.
    """
    usual = "float64" if item.path.parent.name in DOUBLE else "float32"
    marker = item.get_closest_marker("precision")
    torch.set_default_dtype(getattr(torch, marker.args[0] if marker else usual))
    try:
        return (yield)
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.fixture(autouse=True, scope="session")
def ctrl_c_is_heard() -> None:
    """A shell starts background jobs with Ctrl-C ignored, and what is ignored is inherited."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def segue(monkeypatch, capsys, tmp_path) -> Callable[..., tuple[int, str, str]]:
    """`segue WORDS` in this process, one run after the other; counts the runs in `call.runs`."""
    from segue import cli  # here: tests of the lower parts do not wait for the engine
    from segue.studies import pool

    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr(pool, "available_cores", lambda: 1)
    real = pool.run

    def counted(config, folder, *rest):
        call.runs.append(folder.relative_to(tmp_path).as_posix())
        return real(config, folder, *rest)

    monkeypatch.setattr(pool, "run", counted)

    def call(*words: str | Path) -> tuple[int, str, str]:
        call.runs = []
        monkeypatch.setattr(sys, "argv", ["segue", *map(str, words)])
        capsys.readouterr()
        code = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = stop.code or 0
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def prepared_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs side by side are forked from a process that has imported all, which takes seconds each time."""
    from segue.studies import pool

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["segue.studies.pool", "torchvision"])
    monkeypatch.setattr(pool.multiprocessing, "get_context", lambda _: context)


@pytest.fixture
def planned(monkeypatch) -> list[Any]:
    """The jobs of the last comparison; none is run."""
    jobs: list[Any] = []
    monkeypatch.setattr("segue.studies.missing.run_all", lambda asked, *_, **__: jobs.extend(asked))
    return jobs


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a method's finished, uninterrupted run. Not to be changed: copy it."""
    from tiny_runs import quiet_run, recipe  # here: tests of the lower rooms do not wait for the engine

    home = tmp_path_factory.mktemp("finished")
    torch.set_num_threads(1)

    def folder(method: str) -> Path:
        if not (home / method).exists():
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("SEGUE_CACHE", str(home / "cache"))
                quiet_run(recipe(method), home / method)
        return home / method

    return folder
