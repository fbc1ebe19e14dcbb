"""Trackers: the lines of a run's log, shown by TensorBoard, Weights & Biases or MLflow.

Nothing leaves the machine unless the user says so: W&B is offline unless WANDB_MODE is set, MLflow has a
database in the run folder unless MLFLOW_TRACKING_URI is set. What is tracked changes no number of a run.
"""

from __future__ import annotations

import importlib.util
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from segue.core.config import RunConfig, as_dict, to_yaml
from segue.core.extras import missing, needed


class Tracker(ABC):
    """Where the curves of a run go; every incremental step has curves of its own."""

    @abstractmethod
    def __init__(self, config: RunConfig, folder: Path) -> None: ...

    @abstractmethod
    def log(self, step: int, iteration: int, values: Mapping[str, float]) -> None:
        """Mean losses, learning rate and speed at an iteration of a step."""

    @abstractmethod
    def scores(self, step: int, scores: Mapping[str, float]) -> None:
        """Mean IoU after a step."""

    @abstractmethod
    def close(self) -> None: ...


class TensorBoard(Tracker):
    """Event files in RUN/tensorboard: `tensorboard --logdir runs`."""

    def __init__(self, config: RunConfig, folder: Path) -> None:
        _package("tensorboard")
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder / "tensorboard"))
        self._writer.add_text("recipe", f"```\n{to_yaml(config)}```")

    def log(self, step: int, iteration: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(f"step {step}/{name}", value, iteration)

    def scores(self, step: int, scores: Mapping[str, float]) -> None:
        for name, value in scores.items():
            self._writer.add_scalar(f"mIoU/{name}", value, step)

    def close(self) -> None:
        self._writer.close()


class WandB(Tracker):
    """A run of the project segue, offline in ./wandb unless WANDB_MODE says otherwise."""

    def __init__(self, config: RunConfig, folder: Path) -> None:
        if "WANDB_MODE" not in os.environ:
            os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # before the import, which reads it
        wandb = _package("wandb")
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "segue"),
            name=folder.name,
            mode=os.environ.get("WANDB_MODE", "offline"),
            config=as_dict(config),
        )
        self._run.define_metric("mIoU/*", step_metric="step")
        self._known: set[int] = set()

    def log(self, step: int, iteration: int, values: Mapping[str, float]) -> None:
        if step not in self._known:  # each step counts its own iterations
            self._run.define_metric(f"step {step}/*", step_metric=f"step {step}/iteration")
            self._known.add(step)
        counted = {"iteration": iteration, **values}
        self._run.log({f"step {step}/{name}": value for name, value in counted.items()})

    def scores(self, step: int, scores: Mapping[str, float]) -> None:
        self._run.log({"step": step, **{f"mIoU/{name}": value for name, value in scores.items()}})

    def close(self) -> None:
        self._run.finish()


class MLflow(Tracker):
    """A run of the experiment segue in RUN/mlflow.db, or where MLFLOW_TRACKING_URI says."""

    def __init__(self, config: RunConfig, folder: Path) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # before the import, which reads it
        uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{(folder / 'mlflow.db').resolve()}"
        self._client = _package("mlflow").MlflowClient(tracking_uri=uri)
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "segue")
        experiment = self._client.get_experiment_by_name(name)
        number = self._client.create_experiment(name) if experiment is None else experiment.experiment_id
        self._run = self._client.create_run(number, run_name=folder.name).info.run_id
        for key, value in _flat(as_dict(config)):
            self._client.log_param(self._run, key, str(value)[:250])

    def log(self, step: int, iteration: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._client.log_metric(self._run, f"step {step}/{name}", value, step=iteration)

    def scores(self, step: int, scores: Mapping[str, float]) -> None:
        for name, value in scores.items():
            self._client.log_metric(self._run, f"mIoU/{name}", value, step=step)

    def close(self) -> None:
        self._client.set_terminated(self._run)


TRACKERS: dict[str, type[Tracker]] = {"tensorboard": TensorBoard, "wandb": WandB, "mlflow": MLflow}


def check_tracker(name: str) -> None:
    """Find out before anything is read or trained whether the tracker is installed."""
    if name != "none" and importlib.util.find_spec(name) is None:
        raise missing(name, name, f"train.track={name}")


def open_tracker(config: RunConfig, folder: Path) -> Tracker | None:
    """The tracker that `train.track` names."""
    tracker = TRACKERS.get(config.train.track)
    return None if tracker is None else tracker(config, folder)


def _package(name: str) -> Any:
    return needed(name, name, f"train.track={name}")


def _flat(values: Mapping[str, Any], where: str = "") -> list[tuple[str, Any]]:
    """Nested values under dotted names."""
    pairs = []
    for key, value in values.items():
        inner = isinstance(value, Mapping)
        pairs += _flat(value, f"{where}{key}.") if inner else [(f"{where}{key}", value)]
    return pairs
