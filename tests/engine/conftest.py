"""The command line inside the test's process, and several processes beside it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from several import Several, open_server

from segue import cli


@pytest.fixture(scope="session")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Several]:
    """Starts processes that belong together; one import serves all of them."""
    home = tmp_path_factory.mktemp("several")
    with open_server(home) as server:
        yield Several(server, home)
        server.stdin.close()


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
