"""Ctrl-C while the command line is still being imported, and devices and processes that are not there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import segue as package
from segue.core.errors import UserError
from segue.data.batches import lost_worker_is_told
from segue.engine.device import pick_device

STOPPER = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(10)\n"


def test_ctrl_c_while_importing_is_no_traceback(tmp_path: Path) -> None:
    """A module that the command line imports presses Ctrl-C."""
    (tmp_path / "typer.py").write_text(STOPPER)
    source = Path(package.__file__).parents[1]
    path = os.pathsep.join([str(tmp_path), str(source)])
    done = subprocess.run(
        [sys.executable, "-m", "segue", "show"], env={**os.environ, "PYTHONPATH": path}, capture_output=True,
        text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 130 and "Traceback" not in done.stderr and "Stopped" in done.stderr


def test_the_handler_of_before_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    from segue import __main__ as entry

    before, seen = signal.getsignal(signal.SIGINT), []
    monkeypatch.setattr("segue.cli.main", lambda: seen.append(signal.getsignal(signal.SIGINT)))
    entry.main()
    assert seen == [before]


@pytest.mark.parametrize("name", ["privateuseone", "meta", "nothing", "cuda:99", "fpga", "", "cpu:x"])
def test_devices_that_cannot_be_used_are_a_sentence(name: str) -> None:
    with pytest.raises(UserError, match="device") as caught:
        pick_device(name)
    assert len(str(caught.value)) < 400


def test_killed_reader_of_images_is_a_sentence() -> None:
    worker = "DataLoader worker"
    for text in (
        f"{worker} (pid(s) 7) exited unexpectedly",
        f"{worker} (pid 7) is killed by signal: Killed.",
    ):
        with pytest.raises(UserError, match="memory"), lost_worker_is_told():
            raise RuntimeError(text)
    with pytest.raises(RuntimeError, match="other"), lost_worker_is_told():
        raise RuntimeError("other")


def test_ctrl_c_before_the_command_is_known_is_no_traceback(monkeypatch, capsys) -> None:
    from segue import cli

    def stop(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "app", stop)
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 130 and "Stopped" in capsys.readouterr().err
