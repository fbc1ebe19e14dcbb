"""Finished tiny runs, made once per session, and the command line inside the test's process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from tiny_runs import quiet_run, recipe

from segue import cli


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a method's finished, uninterrupted run. Not to be changed: copy it."""
    home = tmp_path_factory.mktemp("finished")
    torch.set_num_threads(1)

    def folder(method: str) -> Path:
        if not (home / method).exists():
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("SEGUE_CACHE", str(home / "cache"))
                quiet_run(recipe(method), home / method)
        return home / method

    return folder


@dataclass(frozen=True)
class Outcome:
    """What the command line left behind."""

    code: int
    out: str
    err: str


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """`segue WORDS` in this process; whatever would end in a traceback fails the test."""

    def call(*words: str | Path) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["segue", *map(str, words)])
        capsys.readouterr()
        code = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = stop.code or 0
        return Outcome(code, *capsys.readouterr())

    return call
