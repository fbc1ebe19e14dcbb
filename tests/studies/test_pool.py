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
import torch
from tiny_runs import assert_equal_runs, recipe

from segue.core.errors import UserError
from segue.core.progress import Display
from segue.studies import pool as grid
from segue.studies.jobs import Job, Workers
from segue.studies.pool import run_all

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

    pool = grid.Pool([], "cpu", 1, 1, shows_bars=False)
    pool.running = {"a": Busy(), "b": Busy()}
    with pytest.raises(KeyboardInterrupt):
        pool.stop()
    assert all(process.killed for process in pool.running.values())


SHOWS_GPUS = """import os
from pathlib import Path
from segue.methods.finetune import FineTune

class ShowsGpus(FineTune):
    def losses(self, batch):
        with open(Path(__file__).parent / "seen.txt", "a") as file:
            file.write(os.environ["CUDA_VISIBLE_DEVICES"] + " " + os.environ.get("WORLD_SIZE", "1") + chr(10))
        return super().losses(batch)

METHOD = ShowsGpus
"""


@pytest.fixture
def three_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """GPUs by name; there are none, so that runs stay on the CPU."""
    monkeypatch.setattr(grid, "available_gpus", lambda _: ["0", "2", "5"])


def seen_gpus(folder: Path, runs: int, gpus_per_run: int) -> list[str]:
    (folder / "shows.py").write_text(SHOWS_GPUS)
    config = recipe(str(folder / "shows.py"), "train.epochs=1", "train.epochs_next=1")
    jobs = [Job(config, folder / f"run{index}") for index in range(runs)]
    run_all(jobs, "auto", Display(quiet=True), workers=Workers(gpus_per_run))
    return (folder / "seen.txt").read_text().splitlines()


def test_every_run_has_a_gpu_of_its_own(prepared_processes: None, three_gpus: None, tmp_path: Path) -> None:
    assert set(seen_gpus(tmp_path, runs=3, gpus_per_run=1)) == {"0 1", "2 1", "5 1"}
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


@pytest.mark.slow
def test_two_gpus_per_run_by_torchrun(prepared_processes: None, three_gpus: None, tmp_path: Path) -> None:
    assert set(seen_gpus(tmp_path, runs=1, gpus_per_run=2)) == {"0,2 2"}, "the third GPU is too few"


def test_more_gpus_per_run_than_there_are(three_gpus: None, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--gpus-per-run 4: 3 GPUs"):
        run_all([Job(recipe("mib"), tmp_path)], "auto", Display(quiet=True), workers=Workers(4))


def test_gpus_are_those_that_the_environment_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "pick_device", lambda name: torch.device("cuda" if name == "auto" else name))
    monkeypatch.setattr(grid.torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert grid.available_gpus("auto") == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-7")
    assert grid.available_gpus("auto") == ["3", "GPU-7"]
    assert grid.available_gpus("cuda:1") == grid.available_gpus("cpu") == []


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
