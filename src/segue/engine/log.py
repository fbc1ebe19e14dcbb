"""The log of losses: means over a few iterations, one JSON line each, equal bytes after any interruption."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from segue.core.errors import UserError
from segue.core.records import append_file


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

    def __init__(self, name: str, value: float, kind: str = "loss term") -> None:
        super().__init__(f"The {kind} '{name}' became {value}.")
        self.culprit = f"'{name}'" if kind == "loss term" else "one of the loss terms"


class LossLog:
    """log.jsonl, line by line. Its length is part of a checkpoint: a resumed run cuts what came after."""

    def __init__(self, path: Path, keep_bytes: int = 0) -> None:
        self.path = path
        try:
            self._file = append_file(path, path.parent)
            self._file.truncate(min(keep_bytes, self._file.tell()))  # never longer: that would append zeros
        except OSError as error:
            raise UserError(f"Cannot write {path}: {error.strerror}.") from error

    @property
    def size(self) -> int:
        return self.path.stat().st_size

    def write(self, line: dict[str, Any]) -> None:
        try:
            self._file.write((json.dumps(line) + "\n").encode())
            self._file.flush()
        except OSError as error:
            raise UserError(f"Cannot write {self.path}: {error.strerror}.") from error

    def close(self) -> None:
        with suppress(OSError):  # every line was flushed: what is left failed before, and was said
            self._file.close()
