"""A run whose process is killed at any moment ends, when resumed, exactly where an undisturbed one ends."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from tiny_runs import ITERATIONS, arguments, assert_equal_runs, checkpoints, log_lines, quiet_run, recipe

from segue.data.batches import loader
from segue.engine.interrupt import STOPPING

PATIENCE = 300.0

LAUNCHER = """
import json, os, sys
import segue.cli, segue.engine.run, segue.report, torchvision  # slow to import: once for all processes
for line in sys.stdin:
    job = json.loads(line)
    process = os.fork()
    if process == 0:
        output = os.open(job["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, 1), os.dup2(output, 2)
        sys.argv = ["segue", *job["words"]]
        segue.cli.main()
    print(process, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
"""


def environment(cache: Path) -> dict[str, str]:
    return os.environ | {"SEGUE_CACHE": str(cache), "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@dataclass
class Launcher:
    """Starts `segue` processes, one after the other, without the seconds that imports take."""

    server: subprocess.Popen
    output: Path

    def start(self, *words: str) -> int:
        self.server.stdin.write(json.dumps({"words": words, "output": str(self.output)}) + "\n")
        self.server.stdin.flush()
        return int(self.server.stdout.readline())

    def wait(self) -> int:
        return int(self.server.stdout.readline())


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    home = tmp_path_factory.mktemp("launcher")
    with subprocess.Popen(
        [sys.executable, "-c", LAUNCHER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(home / "cache"),
    ) as server:
        yield Launcher(server, home / "output")
        server.stdin.close()


def wait_for(folder: Path, new: int, alive: Callable[[], bool]) -> None:
    """Until so many new checkpoints have appeared in a run folder, or its process has ended."""
    known = set(checkpoints(folder))
    seen: set[str] = set()
    give_up = time.monotonic() + PATIENCE
    while len(seen) < new and alive():
        assert time.monotonic() < give_up, "no checkpoint appeared"
        seen |= set(checkpoints(folder)) - known
        time.sleep(0.001)


def exists(process: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(process, 0)
        return True
    return False


@pytest.mark.parametrize("method", ["mib", "caf"])
def test_killed_again_and_again(method, tmp_path, finished, launcher):
    folder, chance = tmp_path / "run", random.Random(f"kill {method}")
    words = [*arguments(method, folder), "--resume"]
    codes, stops = [], set()
    for _ in range(6):
        process = launcher.start(*words)
        wait_for(folder, chance.randint(1, 2), lambda process=process: exists(process))
        time.sleep(chance.uniform(0, 0.05))
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        codes.append(launcher.wait())
        stops.add(checkpoints(folder)[-1])
        if codes[-1] != -signal.SIGKILL:
            break
    assert codes.count(-signal.SIGKILL) >= 4, launcher.output.read_text()
    assert len(stops) >= 4, "the moments differ"
    launcher.start(*words)
    assert launcher.wait() == 0, launcher.output.read_text()
    assert_equal_runs(folder, finished(method))


def test_ctrl_c_in_a_terminal(tmp_path, finished):
    folder = tmp_path / "run"
    for _ in range(3):  # on a busy machine the run may be over before the signal is sent
        with subprocess.Popen(
            [sys.executable, "-m", "segue", *arguments("caf", folder), "--overwrite"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(tmp_path / "cache"),
        ) as process:
            wait_for(folder, 1, lambda process=process: process.poll() is None)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=PATIENCE)
        if process.returncode:
            break
    assert process.returncode == 130, errors
    assert STOPPING in errors and "--resume" in errors and "Traceback" not in errors
    assert "-" in checkpoints(folder)[-1], "saved inside a step"
    quiet_run(recipe("caf"), folder, resume=True)
    assert_equal_runs(folder, finished("caf"))


# torch raises in a signal handler when a worker is gone, maybe while a socket is open
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_run_whose_reader_of_images_was_killed_goes_on(tmp_path, command, monkeypatch):
    """The system kills what takes most memory: often a process that reads images, not the one that trains."""
    folder, main, read = tmp_path / "run", os.getpid(), loader._ErrorsAsValues.__getitem__

    def killed(self, item):
        if os.getpid() != main and checkpoints(folder):
            os.kill(os.getpid(), signal.SIGKILL)
        return read(self, item)

    words = arguments("mib", folder, "train.workers=1")
    with monkeypatch.context() as patch:
        patch.setattr(loader._ErrorsAsValues, "__getitem__", killed)
        outcome = command(*words)
    assert outcome.code == 2 and "train.workers" in outcome.err and "Traceback" not in outcome.err
    assert checkpoints(folder)
    assert command(*words, "--resume").code == 0
    assert [line["iteration"] for line in log_lines(folder)][-1] == ITERATIONS[-1]
