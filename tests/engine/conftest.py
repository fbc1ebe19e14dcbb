"""The command line inside the test's process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from segue import cli


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
