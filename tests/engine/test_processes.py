"""Several processes train as one does: the same losses, confusion matrices and weights; the first writes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from several import torchrun
from tiny_runs import (
    arguments,
    assert_equal_runs,
    checkpoints,
    files,
    log_lines,
    quiet_run,
    recipe,
    run_until,
    weights,
)

PATIENCE = 300.0
LEARNS = (
    "train.epochs=30",
    "train.log_every=1",
    "train.workers=0",
    "optim.lr_first=0.3",
    "train.save_seconds=99",
)
"""long enough for a first step that predicts more than background"""
ODD = ("train.batch_size=9", "train.accumulate=2", "eval.every=2")
"""parts of 5 and 4 images, which processes share as 3 and 2, and as 2 and 2"""
KEPT = ("model.frozen_stages=1", "train.cache_frozen=true", "train.views=2")
"""outputs of frozen stages are kept by each process for itself"""
SLOW = pytest.mark.slow

pytestmark = pytest.mark.precision("float64")  # only rounding may tell one process from several

STUMBLES = """
import os
from dataclasses import dataclass
from segue.core.errors import UserError
from segue.losses import cross_entropy
from segue.methods.base import About, Method

@dataclass(frozen=True)
class Config:
    ranks: tuple[str, ...] = ()

class Stumbles(Method):
    '''Fails in some of the processes.'''
    Config = Config
    about = About("stumbles", "a test", 2020)

    def begin_step(self, ctx):
        pass

    def losses(self, batch):
        if os.environ["RANK"] in self.config.ranks:
            raise UserError("This image is bad.")
        return {"ce": cross_entropy(self.model(batch.images).logits, batch.labels)}

METHOD = Stumbles
"""


@pytest.fixture(scope="module")
def one_process(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The folder of a run by this process alone, made once. Not to be changed: copy it."""
    home = tmp_path_factory.mktemp("one")

    def folder(method: str, *words: str) -> Path:
        path = home / "-".join((method, *words)).replace("=", "")
        if not path.exists():
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("SEGUE_CACHE", str(home / "cache"))
                quiet_run(recipe(method, *LEARNS, *words), path)
        return path

    return folder


def forget_last_step(folder: Path, copy: Path) -> None:
    """A copy of a run that goes on after step 0: there batch norm learns, in which processes differ."""
    shutil.copytree(folder, copy)
    (copy / "checkpoints" / "step1.safetensors").unlink()
    for file in (copy / "steps" / "1.json", *(copy / "trajectory").glob("1-*.json")):
        file.unlink()


def record(folder: Path, name: str = "steps/1.json") -> dict:
    return json.loads((folder / name).read_text())


def assert_trained_alike(ours: Path, theirs: Path) -> None:
    """The same up to rounding in double precision."""
    assert len(log_lines(ours)) == len(log_lines(theirs))
    for line, other in zip(log_lines(ours), log_lines(theirs), strict=True):
        assert line["losses"] == pytest.approx(other["losses"], rel=1e-10, abs=1e-14)
        assert line | {"losses": {}} == other | {"losses": {}}
    assert record(ours)["losses"] == pytest.approx(record(theirs)["losses"], rel=1e-10, abs=1e-14)
    assert record(ours)["confusion"] == record(theirs)["confusion"]
    for name, value in weights(theirs, 1).items():
        torch.testing.assert_close(weights(ours, 1)[name], value, rtol=1e-10, atol=1e-12, msg=name)


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("caf", ODD),
        ("caf", ("method.params.rehearsal.weight=1",)),
        ("caf", KEPT),
        ("plop", ()),
        ("ewc", ()),
        pytest.param("mib", (), marks=SLOW),
        pytest.param("caf", (), marks=SLOW),
        pytest.param("rw", (), marks=SLOW),
        pytest.param("dft", ("method.params.memory.size=6", "train.batch_size=9"), marks=SLOW),
    ],
)
def test_two_processes_equal_one(method, words, several, one_process, tmp_path):
    alone = one_process(method, *words)
    seen = torch.tensor(record(alone)["confusion"]).sum(0)
    assert (seen[:3] > 20).all(), f"all classes of step 0 are predicted: {seen}"
    forget_last_step(alone, tmp_path / "two")
    codes = several.run(*arguments(method, tmp_path / "two", *LEARNS, *words), "--resume")
    assert codes == [0, 0], several.said(0) + several.said(1)
    assert files(tmp_path / "two") == files(alone)
    assert_trained_alike(tmp_path / "two", alone)
    for name in files(alone):
        if name.startswith("trajectory/1"):
            assert record(tmp_path / "two", name) == record(alone, name)
    assert record(tmp_path / "two")["versions"].pop("processes") == "2"
    assert "processes" not in record(alone)["versions"]
    assert "mIoU" in several.said(0) and "segue report" in several.said(0)
    assert several.said(1) == "", "the first process alone talks"


def test_another_number_of_processes_goes_on(several, one_process, tmp_path):
    """One begins step 1, two go on, three end it."""
    alone, folder = one_process("plop"), tmp_path / "run"
    forget_last_step(alone, folder)
    run_until(recipe("plop", *LEARNS), folder, 1)
    numbers = several.start(*arguments("plop", folder, *LEARNS, "train.save_seconds=0"), "--resume")
    wait_for(folder, "step1-00000003")
    os.kill(numbers[1], signal.SIGTERM)  # to one of them: all stop
    assert several.wait() == [130, 130], several.said(0) + several.said(1)
    assert several.said(0).count("all is saved") == 1 and several.said(1) == ""
    assert checkpoints(folder)[-1].startswith("step1-0000000")
    codes = several.run(*arguments("plop", folder, *LEARNS), "--resume", size=3)
    assert codes == [0, 0, 0], several.said(0)
    assert_trained_alike(folder, alone)


def wait_for(folder: Path, checkpoint: str) -> None:
    give_up = time.monotonic() + PATIENCE
    while not any(name >= checkpoint for name in checkpoints(folder) if name.startswith(checkpoint[:5])):
        assert time.monotonic() < give_up, f"{checkpoint} did not appear"
        time.sleep(0.001)


def workers(agent: int) -> list[int]:
    return [int(number) for number in Path(f"/proc/{agent}/task/{agent}/children").read_text().split()]


def test_processes_that_are_started_again_end_the_same_run(several, tmp_path):
    """As torchrun does after a worker was killed: the same words, but the count of restarts."""
    words = ("train.workers=0", "train.epochs=4", "eval.every=2")
    assert several.run(*arguments("caf", tmp_path / "straight", *words)) == [0, 0], several.said(0)
    folder = tmp_path / "killed"
    numbers = several.start(*arguments("caf", folder, *words), "--overwrite")
    wait_for(folder, "step0-00000003")  # where batch norm learns
    os.kill(numbers[1], signal.SIGKILL)
    codes = several.wait()
    assert codes[1] == -signal.SIGKILL and codes[0] > 0, several.said(0)
    again = several.run(*arguments("caf", folder, *words), "--overwrite", restarts=1)
    assert again == [0, 0], several.said(0)
    assert_equal_runs(folder, tmp_path / "straight")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds processes by /proc")
@pytest.mark.parametrize("hangs", [0, 1])
def test_process_that_hangs_is_noticed_after_the_patience_of_the_recipe(hangs, several, tmp_path):
    """It is there, and does nothing: as one whose GPU or file system does not answer."""
    folder, words = tmp_path / "run", ("train.workers=0", "train.epochs=500", "train.patience=0.1")
    numbers = several.start(*arguments("mib", folder, *words))
    wait_for(folder, "step0-00000003")
    os.kill(numbers[hangs], signal.SIGSTOP)
    began, waits = time.monotonic(), numbers[1 - hangs]
    try:
        while not ended(waits):
            assert time.monotonic() - began < 60, "six seconds of patience"
            time.sleep(0.05)
    finally:
        os.kill(numbers[hangs], signal.SIGCONT)
    codes = several.wait()
    assert codes[1 - hangs] == 1, several.said(1 - hangs)
    assert "train.patience" in several.said(1 - hangs) and "Traceback" not in several.said(1 - hangs)
    assert checkpoints(folder), "it can be resumed"


def ended(process: int) -> bool:
    """Whether a process of the server's is over, though nobody has asked for its exit code yet."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@SLOW
@pytest.mark.precision("float32")
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes by /proc")
@pytest.mark.parametrize(
    "kills", [[("step0-00000003", 1)], [("step0-00000005", 0), ("step1-00000002", 1), ("step1-00000004", 0)]]
)
def test_torchrun_starts_killed_workers_again(kills, several, tmp_path):
    words = ("train.workers=0", "train.epochs=4", "eval.every=2")
    assert several.run(*arguments("caf", tmp_path / "straight", *words)) == [0, 0], several.said(0)
    folder = tmp_path / "killed"
    with torchrun(*arguments("caf", folder, *words), "--overwrite", restarts=3, home=tmp_path) as agent:
        for checkpoint, place in kills:
            wait_for(folder, checkpoint)
            os.kill(workers(agent.pid)[place], signal.SIGKILL)
        _, errors = agent.communicate(timeout=PATIENCE)
    assert agent.returncode == 0, errors
    assert "Traceback" not in errors
    assert_equal_runs(folder, tmp_path / "straight")


@SLOW
@pytest.mark.precision("float32")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_torchrun_has_saved(number, several, tmp_path):
    words = ("train.workers=1", "train.epochs=4")
    assert several.run(*arguments("caf", tmp_path / "straight", *words)) == [0, 0], several.said(0)
    folder = tmp_path / "stopped"
    with torchrun(*arguments("caf", folder, *words), home=tmp_path) as agent:
        wait_for(folder, "step0-00000003")
        agent.send_signal(number)
        _, errors = agent.communicate(timeout=PATIENCE)
    assert agent.returncode != 0
    assert errors.count("Stopped; all is saved.") == 1, errors
    assert "segue/" not in errors, "no traceback of ours"
    assert several.run(*arguments("caf", folder, *words), "--resume") == [0, 0], several.said(0)
    assert_equal_runs(folder, tmp_path / "straight")


def test_what_all_processes_say_is_said_once(several, one_process, tmp_path):
    words = arguments("caf", tmp_path / "run", "train.batch_size=3")
    codes = several.run(*words)
    assert codes[0] == 2
    assert "\nerror in process 0: 2 processes cannot share the batches" in several.said(0)
    assert "train.batch_size=3" in several.said(0) and "batch norm" in several.said(0)
    assert not (tmp_path / "run").exists()
    codes = several.run(*arguments("plop", one_process("plop"), *LEARNS))
    assert codes[0] == 2 and "exists. Go on with --resume" in several.said(0)


def test_error_of_one_process_ends_all(several, tmp_path):
    method = tmp_path / "stumbles.py"
    method.write_text(STUMBLES)
    codes = several.run(*arguments(method, tmp_path / "run", "method.params.ranks=['1']"))
    assert codes[1] == 2 and several.said(1) == "error in process 1: This image is bad.\n"
    assert codes[0] == 1 and "\nerror in process 0: Another process is gone" in several.said(0)
    assert "Traceback" not in several.said(0)


def test_other_commands_are_for_one_process(several, one_process):
    codes = several.run("report", one_process("plop"))
    assert codes == [2, 2] and "not report" in several.said(0)
