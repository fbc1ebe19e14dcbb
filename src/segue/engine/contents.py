"""What a checkpoint holds: one schema for a finished step, one for a moment inside a step.

A digest tells that a file is as it was written, not that a run has written it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from torch import Tensor

from segue.core.errors import UserError, brief

Whole = Annotated[int, Field(ge=0, le=2**53)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
State = dict[str, Tensor]
Setting = bool | int | float | str | None | list[int] | list[float]


@dataclass(frozen=True)
class Outcome:
    """What the record of a step needs of its training."""

    losses: dict[str, float]
    seconds: Seconds
    peak_memory: Whole


@dataclass(frozen=True)
class Finished:
    """A finished step."""

    method: State
    outcome: Outcome
    log_bytes: Whole
    identity: str
    weights: str | None = None


@dataclass(frozen=True)
class Meter:
    """Sums of loss terms."""

    sums: State
    count: Whole


@dataclass(frozen=True)
class OptimizerState:
    """An optimiser as PyTorch stores it."""

    state: dict[int, dict[str, Tensor | Setting]]
    param_groups: list[dict[str, Setting]]


@dataclass(frozen=True)
class Inside:
    """A moment inside a step."""

    method: State
    optimizer: OptimizerState
    scaler: dict[str, Setting]
    generator: Tensor
    torch_rng: Tensor
    device_rng: list[Tensor]
    iteration: Whole
    seconds: Seconds
    recent: Meter
    epoch: Meter
    log_bytes: Whole
    identity: str
    weights: str | None = None


def check_contents(tree: Mapping[str, Any], path: Path, finished: bool) -> None:
    """Refuse a tree that no run has written."""
    try:
        _adapter(Finished if finished else Inside).validate_python(tree, strict=False)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(map(str, problem["loc"]))
        what = "is missing" if problem["type"] == "missing" else f"is {brief(problem['input'])}"
        raise UserError(f"{path} is no checkpoint of this version: '{place}' {what}.") from error


@cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    for each in (Outcome, Finished, Meter, OptimizerState, Inside):
        each.__pydantic_config__ = ConfigDict(arbitrary_types_allowed=True)  # type: ignore[attr-defined]
    return TypeAdapter(kind)
