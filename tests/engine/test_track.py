"""Trackers get the lines of the log, change nothing of a run, and send nothing unless they are told to."""

from __future__ import annotations

import importlib.machinery
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from tiny_runs import assert_equal_runs, files, log_lines, quiet_run, recipe

from segue.core.config import recipe_hash
from segue.core.errors import UserError
from segue.core.records import read_run
from segue.engine.folder import identity
from segue.engine.track import TRACKERS, open_tracker


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings of the person who tests; what a tracker sets is taken back."""
    for name in [name for name in os.environ if name.startswith(("WANDB_", "MLFLOW_"))]:
        monkeypatch.delenv(name)
    for name in ("WANDB_ERROR_REPORTING", "MLFLOW_DISABLE_TELEMETRY"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts a stand-in for a package where imports find it."""

    def install(name: str, **content: Any) -> None:
        module = ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)

    return install


def test_tensorboard_shows_what_the_log_says(tmp_path: Path, finished) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    folder = tmp_path / "run"
    quiet_run(recipe("finetune", "train.track=tensorboard"), folder)
    found = events.EventAccumulator(str(folder / "tensorboard")).Reload()
    for step in (0, 1):
        lines = [line for line in log_lines(folder) if line["step"] == step]
        for name in ("ce", "lr"):
            curve = [(event.step, event.value) for event in found.Scalars(f"step {step}/{name}")]
            logged = [(line["iteration"], line["losses"].get(name, line["lr"])) for line in lines]
            assert curve == [(iteration, pytest.approx(value)) for iteration, value in logged]
    scores = [event.step for event in found.Scalars("mIoU/all")]
    assert scores == [0, 1] and [event.step for event in found.Scalars("mIoU/new")] == [1]
    with_events = [name for name in files(folder) if name.startswith("tensorboard/")]
    for name in with_events:
        (folder / name).unlink()
    (folder / "recipe.yaml").write_bytes((finished("finetune") / "recipe.yaml").read_bytes())
    assert_equal_runs(folder, finished("finetune"))


def test_wandb_is_offline_unless_told_otherwise(tmp_path: Path, installed, monkeypatch) -> None:
    board = MagicMock()
    installed("wandb", init=board.init)
    tracker = open_tracker(recipe("mib", "train.track=wandb"), tmp_path / "run")
    options = board.init.call_args.kwargs
    assert options["mode"] == "offline" and options["name"] == "run"
    assert options["config"]["method"]["name"] == "mib"
    assert os.environ["WANDB_ERROR_REPORTING"] == "false"
    tracker.log(1, 20, {"ce": 0.5})
    tracker.log(1, 30, {"ce": 0.4})
    tracker.scores(1, {"all": 0.3})
    tracker.close()
    run = board.init.return_value
    assert [call.args[0] for call in run.log.call_args_list] == [
        {"step 1/iteration": 20, "step 1/ce": 0.5},
        {"step 1/iteration": 30, "step 1/ce": 0.4},
        {"step": 1, "mIoU/all": 0.3},
    ]
    run.finish.assert_called_once()
    monkeypatch.setenv("WANDB_MODE", "online")
    open_tracker(recipe("mib", "train.track=wandb"), tmp_path / "run")
    assert board.init.call_args.kwargs["mode"] == "online"


def test_mlflow_has_a_database_in_the_run_folder(tmp_path: Path, installed, monkeypatch) -> None:
    client = MagicMock()
    client.get_experiment_by_name.return_value = None
    client.create_run.return_value = SimpleNamespace(info=SimpleNamespace(run_id="17"))
    board = MagicMock(return_value=client)
    installed("mlflow", MlflowClient=board)
    tracker = open_tracker(recipe("mib", "train.track=mlflow"), tmp_path)
    assert board.call_args.kwargs == {"tracking_uri": f"sqlite:///{tmp_path.resolve()}/mlflow.db"}
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
    client.log_param.assert_any_call("17", "train.batch_size", "8")
    tracker.log(0, 20, {"ce": 0.5})
    tracker.scores(0, {"all": 0.3})
    tracker.close()
    client.log_metric.assert_any_call("17", "step 0/ce", 0.5, step=20)
    client.log_metric.assert_any_call("17", "mIoU/all", 0.3, step=0)
    client.set_terminated.assert_called_once_with("17")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://localhost:5000")
    open_tracker(recipe("mib", "train.track=mlflow"), tmp_path)
    assert board.call_args.kwargs == {"tracking_uri": "http://localhost:5000"}


@pytest.mark.parametrize("name", sorted(TRACKERS))
def test_a_missing_package_is_named_before_anything_is_done(name: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setattr("segue.engine.run.build_data", None)  # not reached
    with pytest.raises(UserError, match=rf"pip install 'segue\[{name}\]'"):
        quiet_run(recipe("finetune", f"train.track={name}"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_tracker_is_no_part_of_what_a_run_is(tmp_path: Path, finished) -> None:
    plain, tracked = recipe("mib"), recipe("mib", "train.track=tensorboard")
    assert identity(plain) == identity(tracked) and recipe_hash(plain) == recipe_hash(tracked)
    assert open_tracker(plain, tmp_path) is None
    hashes = {step.recipe_hash for step in read_run(finished("mib")).steps}
    assert hashes == {recipe_hash(tracked)}
