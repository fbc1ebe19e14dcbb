"""Resume equals continue: from any iteration, from any checkpoint that is left, for every method."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import pytest
from rich.console import Console
from tiny_runs import (
    DROPOUT,
    ITERATIONS,
    assert_equal_runs,
    checkpoints,
    files,
    log_lines,
    quiet_run,
    recipe,
    run_until,
)

from segue.core.config import RunConfig
from segue.core.progress import Display
from segue.core.scenario import Step
from segue.engine import run as run_module
from segue.engine.checkpoint import CheckpointStore
from segue.engine.data import Data
from segue.methods.base import Method


def talking() -> tuple[Display, io.StringIO]:
    text = io.StringIO()
    return Display(Console(file=text)), text


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("method", ["finetune", "mib", "caf"])
def test_interrupted_in_both_steps(method, tmp_path, finished):
    folder = tmp_path / "run"
    run_until(recipe(method), folder, 4)
    assert checkpoints(folder) == ["step0-00000003", "step0-00000004"]
    run_until(recipe(method), folder, ITERATIONS[0] - 4 + 3)
    assert checkpoints(folder) == ["step0", "step1-00000002", "step1-00000003"]
    quiet_run(recipe(method), folder, resume=True)
    assert_equal_runs(folder, finished(method))


def test_interrupted_offline_method(tmp_path, finished):
    folder = tmp_path / "run"
    run_until(recipe("joint"), folder, 1)
    run_until(recipe("joint"), folder, 7)
    quiet_run(recipe("joint"), folder, resume=True)
    assert_equal_runs(folder, finished("joint"))


def test_interrupted_in_the_last_iteration_of_a_step(tmp_path, finished):
    folder = tmp_path / "run"
    run_until(recipe("mib"), folder, ITERATIONS[0])
    assert checkpoints(folder)[-1] == f"step0-{ITERATIONS[0]:08d}"
    quiet_run(recipe("mib"), folder, resume=True)
    assert_equal_runs(folder, finished("mib"))


def run_without_record_of(step: int, config: RunConfig, folder: Path) -> None:
    """Start or resume a run and cut its power after a step is saved, before it is tested."""
    record = run_module.record_step

    def power_cut(method: Method, data: Data, current: Step, *rest: object) -> None:
        if current.index == step:
            raise SystemExit
        record(method, data, current, *rest)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(run_module, "record_step", power_cut)
        quiet_run(config, folder, resume=True)
    assert checkpoints(folder)[-1] == f"step{step}"
    assert f"steps/{step}.json" not in files(folder)


@pytest.mark.parametrize(("method", "step"), [("mib", 0), ("caf", 1)])
def test_stopped_between_a_step_and_its_record(method, step, tmp_path, finished):
    folder = tmp_path / "run"
    run_without_record_of(step, recipe(method), folder)
    quiet_run(recipe(method), folder, resume=True)
    assert_equal_runs(folder, finished(method))


def test_global_random_numbers_go_on(tmp_path):
    method = tmp_path / "dropout.py"
    method.write_text(DROPOUT)
    config = recipe(str(method), "train.epochs=2", "train.epochs_next=1")
    quiet_run(config, tmp_path / "straight")
    run_until(config, tmp_path / "stopped", 2)
    run_without_record_of(0, config, tmp_path / "stopped")  # new classifiers are drawn after this
    quiet_run(config, tmp_path / "stopped", resume=True)
    assert_equal_runs(tmp_path / "stopped", tmp_path / "straight")


def test_resumed_finished_run_is_left_alone(tmp_path, finished):
    folder = tmp_path / "mib"
    shutil.copytree(finished("mib"), folder)
    before = {
        name: ((folder / name).read_bytes(), (folder / name).stat().st_mtime_ns) for name in files(folder)
    }
    record = quiet_run(recipe("mib"), folder, resume=True)
    after = {
        name: ((folder / name).read_bytes(), (folder / name).stat().st_mtime_ns) for name in files(folder)
    }
    assert record.finished
    assert list(after) == list(before)
    for name in before:
        assert after[name][0] == before[name][0], name
        assert name == "log.jsonl" or after[name][1] == before[name][1], f"{name} was written anew"


def test_resume_without_a_run_starts_one(tmp_path, finished):
    quiet_run(recipe("mib"), tmp_path / "new", resume=True)
    assert_equal_runs(tmp_path / "new", finished("mib"))


def test_damaged_checkpoint_goes_back_to_the_one_before(tmp_path, finished):
    folder, config = tmp_path / "run", recipe("mib")
    run_until(config, folder, 4)
    newest = CheckpointStore(folder).entries()[-1].path
    truncate(newest)
    display, text = talking()
    run_until(config, folder, 1, display)
    assert str(newest) in text.getvalue() and "Going back to the one before." in text.getvalue()
    assert checkpoints(folder) == ["step0-00000003", "step0-00000004"], "went on from iteration 3, not from 0"
    quiet_run(config, folder, resume=True)
    assert_equal_runs(folder, finished("mib"))


def test_both_checkpoints_inside_a_step_damaged_goes_back_to_the_step_before(tmp_path, finished):
    folder, config = tmp_path / "run", recipe("mib")
    run_until(config, folder, ITERATIONS[0] + 3)
    assert checkpoints(folder) == ["step0", "step1-00000002", "step1-00000003"]
    for entry in CheckpointStore(folder).entries()[1:]:
        flip(entry.path)
    display, text = talking()
    run_until(config, folder, 1, display)
    assert text.getvalue().count("Going back") == 2
    assert checkpoints(folder) == ["step0", "step1-00000001"], "what was passed over is gone"
    quiet_run(config, folder, resume=True)
    assert_equal_runs(folder, finished("mib"))


def test_lost_teacher_starts_anew_and_forgets_what_came_after(tmp_path, finished):
    """A checkpoint inside step 1 is useless without step 0, and must not push out those of a new step 0."""
    folder, config = tmp_path / "run", recipe("mib")
    run_until(config, folder, ITERATIONS[0] + 3)
    truncate(CheckpointStore(folder).path(0))
    run_until(config, folder, 3)
    assert checkpoints(folder) == ["step0-00000002", "step0-00000003"]
    assert [line["iteration"] for line in log_lines(folder)] == [2]
    quiet_run(config, folder, resume=True)
    assert_equal_runs(folder, finished("mib"))


def test_finished_step_damaged_is_trained_again(tmp_path, finished):
    folder = tmp_path / "mib"
    shutil.copytree(finished("mib"), folder)
    flip(CheckpointStore(folder).path(1))
    display, text = talking()
    run_module.run(recipe("mib"), folder, resume=True, display=display)
    assert "step1.safetensors is damaged" in text.getvalue()
    assert_equal_runs(folder, finished("mib"))


def test_log_after_the_checkpoint_is_cut(tmp_path, finished):
    folder, config = tmp_path / "run", recipe("mib")
    run_until(config, folder, 5)
    with open(folder / "log.jsonl", "a") as log:
        log.write('{"step": 0, "iteration": 6, "half a li')
    quiet_run(config, folder, resume=True)
    assert_equal_runs(folder, finished("mib"))


def test_lost_log_is_not_filled_with_zeros(tmp_path):
    folder, config = tmp_path / "run", recipe("mib")
    run_until(config, folder, 6)
    (folder / "log.jsonl").unlink()
    quiet_run(config, folder, resume=True)
    assert [line["iteration"] for line in log_lines(folder)][:2] == [8, 9]


def test_half_written_files_of_a_killed_process_are_removed(tmp_path, finished):
    folder, config = tmp_path / "run", recipe("mib")
    run_until(config, folder, 2)
    checkpoint = "checkpoints/.step0-00000003.safetensors.y.part"
    for place in (".recipe.yaml.x.part", checkpoint, "samples/0/.step1.png.z_1.part"):
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_bytes(b"half")
    quiet_run(config, folder, resume=True)
    assert_equal_runs(folder, finished("mib"))
