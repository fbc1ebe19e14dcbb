"""The logs of a run: losses, equal bytes after any interruption, and beside them what the clock said."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from segue.core.errors import UserError, reason
from segue.core.records import append_file
from segue.engine.track import Tracker

LOSS_LOG = "log.jsonl"
TIMES_LOG = "times.jsonl"


class LossMeter:
    """Sums of loss terms, kept on the device until they are asked for."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.count = 0

    def add(self, terms: dict[str, Tensor]) -> None:
        for name, value in terms.items():
            self.sums[name] = (
                self.sums[name] + value.detach() if name in self.sums else value.detach().clone()
            )
        self.count += 1

    def means(self) -> dict[str, float]:
        """Means so far; raises `BadLoss` if a term is not finite."""
        if not self.sums:
            return {}
        device = next(iter(self.sums.values())).device
        sums = torch.stack([value.to(device) for value in self.sums.values()]).cpu()  # one wait for all terms
        values = (sums.double() / self.count).tolist()
        for name, value in zip(self.sums, values, strict=True):
            if not math.isfinite(value):
                raise BadLoss(name, value)
        return dict(zip(self.sums, values, strict=True))

    def reset(self) -> None:
        self.sums, self.count = {}, 0

    def state_dict(self) -> dict[str, Any]:
        return {"sums": dict(self.sums), "count": self.count}

    def load_state_dict(self, state: dict[str, Any], device: torch.device) -> None:
        self.sums = {name: value.to(device) for name, value in state["sums"].items()}
        self.count = state["count"]


class BadLoss(UserError):
    """A loss term, or a weight because of its gradient, became NaN or infinite."""

    def __init__(self, name: str, value: float, subject: str = "loss term") -> None:
        super().__init__(f"The {subject} '{name}' became {value}.")
        self.culprit = f"'{name}'" if subject == "loss term" else "one of the loss terms"


class LineFile:
    """A file of JSON lines, each there at once."""

    def __init__(self, path: Path, keep_bytes: int) -> None:
        self.path = path
        try:
            self._file = append_file(path, path.parent)
            self._file.truncate(min(keep_bytes, self._file.tell()))  # never longer: that would append zeros
        except OSError as error:
            raise UserError(f"Cannot write {path}: {reason(error)}.") from error

    @property
    def size(self) -> int:
        try:
            return self.path.stat().st_size
        except OSError as error:
            raise UserError(
                f"{self.path} is gone while the run writes it ({reason(error)}): go on with --resume."
            ) from error

    def write(self, line: dict[str, Any]) -> None:
        try:
            self._file.write((json.dumps(line) + "\n").encode())
            self._file.flush()
        except OSError as error:
            raise UserError(f"Cannot write {self.path}: {reason(error)}.") from error

    def close(self) -> None:
        with suppress(OSError):  # every line was flushed: what is left failed before, and was said
            self._file.close()


class RunLog:
    """log.jsonl, times.jsonl and the tracker, fed with the same lines.

    The length of log.jsonl is part of a checkpoint: a resumed run cuts what came after. times.jsonl keeps
    what was done in vain, too: time went by.
    """

    def __init__(self, folder: Path, keep_bytes: int = 0, tracker: Tracker | None = None) -> None:
        self._losses = LineFile(folder / LOSS_LOG, keep_bytes)
        self._times = LineFile(folder / TIMES_LOG, _whole_lines(folder / TIMES_LOG))
        self._tracker = tracker
        self._since = (0, 0.0)

    @property
    def size(self) -> int:
        """Bytes of log.jsonl."""
        return self._losses.size

    def count_from(self, iteration: int, seconds: float) -> None:
        """The iteration and the training time from which on the next line takes its speed."""
        self._since = iteration, seconds

    def write(self, line: dict[str, Any], seconds: float, peak_memory: int) -> None:
        """Mean losses of some iterations, after so many seconds of training in this step."""
        self._losses.write(line)
        iteration, before = self._since
        speed = (line["iteration"] - iteration) / max(seconds - before, 1e-9)
        self.count_from(line["iteration"], seconds)
        times = {
            "step": line["step"],
            "iteration": line["iteration"],
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "seconds": round(seconds, 3),
            "iterations_per_second": round(speed, 4),
            "peak_memory": peak_memory,
        }
        self._times.write(times)
        if self._tracker is not None:
            speeds = {"lr": line["lr"], "iterations_per_second": speed}
            self._tracker.log(line["step"], line["iteration"], line["losses"] | speeds)

    def scores(self, step: int, scores: dict[str, float]) -> None:
        if self._tracker is not None:
            self._tracker.scores(step, scores)

    def close(self) -> None:
        self._losses.close()
        self._times.close()
        if self._tracker is not None:
            self._tracker.close()


def _whole_lines(path: Path) -> int:
    """Bytes up to the end of the last line: a killed process may have left half of one."""
    return path.read_bytes().rfind(b"\n") + 1 if path.is_file() else 0
