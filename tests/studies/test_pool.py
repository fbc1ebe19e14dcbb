"""Runs side by side are the runs that they would be alone; trouble in one does not harm the others."""

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_runs import assert_equal_runs, recipe

from segue.core.errors import UserError
from segue.core.progress import Display
from segue.studies import pool as grid
from segue.studies.pool import Job, run_all

PATIENCE = 300.0


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "available_cores", lambda: 2)


def test_a_run_beside_a_failing_one_equals_the_run_alone(
    prepared_processes: None, finished: Callable[[str], Path], tmp_path: Path
) -> None:
    good = recipe("mib")
    bad = dataclasses.replace(good, model=dataclasses.replace(good.model, backbone="resnet1"))
    with pytest.raises(UserError, match=r"^bad: There is no backbone 'resnet1'"):
        run_all([Job(bad, tmp_path / "bad"), Job(good, tmp_path / "good")], "cpu", Display(quiet=True))
    assert_equal_runs(tmp_path / "good", finished("mib"))


QUITS = """import sys
from segue.methods.finetune import FineTune

class Quits(FineTune):
    def losses(self, batch):
        sys.exit()

METHOD = Quits
"""


def test_a_run_that_ends_without_a_word_does_not_hang_the_others(
    prepared_processes: None, tmp_path: Path
) -> None:
    (tmp_path / "quits.py").write_text(QUITS)
    jobs = [Job(recipe(str(tmp_path / "quits.py")), tmp_path / "a"), Job(recipe("mib"), tmp_path / "b")]
    with pytest.raises(UserError, match=r"a: the process ended with exit code 0"):
        run_all(jobs, "cpu", Display(quiet=True), keep_going=True)
    assert (tmp_path / "b" / "steps").is_dir()


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)])
def test_a_stopped_demo_saves_and_leaves_no_process(number: int, tmp_path: Path) -> None:
    out = tmp_path / "demo"
    process = subprocess.Popen(
        [sys.executable, "-m", "segue", "demo", "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env=os.environ | {"PYTHONWARNINGS": ""},
    )
    deadline = time.monotonic() + PATIENCE
    while not list(out.glob("*/log.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1)
    if number == signal.SIGINT:
        os.killpg(process.pid, signal.SIGINT)  # what a terminal does
    else:
        os.kill(process.pid, number)  # the parent alone
    try:
        said, _ = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    assert "Traceback" not in said
    if number == signal.SIGINT:
        assert process.returncode == 130 and "Go on with" in said
    deadline = time.monotonic() + PATIENCE  # helpers of multiprocessing end a moment later
    while _alive(process.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not _alive(process.pid), "a process was left behind"
    assert list(out.glob("*/checkpoints/step0-*.safetensors")), "nothing was saved"


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_second_ctrl_c_does_not_wait_for_the_iterations(tmp_path: Path) -> None:
    class Busy:
        """A process in a long iteration, while Ctrl-C is pressed again."""

        pid, killed = os.getpid(), False

        def is_alive(self) -> bool:
            return False

        def join(self) -> None:
            raise KeyboardInterrupt

        def kill(self) -> None:
            self.killed = True

    pool = grid._Pool([], "cpu", Display(quiet=True), 2, 1, keep_going=False)
    pool.running = {"a": Busy(), "b": Busy()}
    with pytest.raises(KeyboardInterrupt):
        pool._stop()
    assert all(process.killed for process in pool.running.values())


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 always looks in the current folder")
def test_modules_in_the_current_folder_are_not_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    for name in ("multiprocessing", "pickle", "types", "torch"):
        (here / f"{name}.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w').close()\n")
    monkeypatch.chdir(here)
    good = recipe("mib")
    bad = dataclasses.replace(good, model=dataclasses.replace(good.model, backbone="resnet1"))
    with pytest.raises(UserError, match="There is no backbone 'resnet1'"):
        run_all([Job(bad, tmp_path / "a"), Job(bad, tmp_path / "b")], "cpu", Display(quiet=True))
    assert not (tmp_path / "executed").exists() and "PYTHONSAFEPATH" not in os.environ
