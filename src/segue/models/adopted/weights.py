"""Weights of other libraries: read without running anything, and loaded exactly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from segue.core.errors import UserError
from segue.models.weights_file import first_nan, open_weights

INSIDE = ("state_dict", "model_state_dict", "model_state", "model", "ema")
"""keys of checkpoints under which the weights are"""
PREFIXES = ("module.", "model.", "net.", "_orig_mod.")
"""beginnings of names that wrappers leave"""
MOST_SHOWN = 10


@dataclass(frozen=True)
class Foreign:
    """A module from elsewhere and what its files say of it; None: they do not."""

    module: nn.Module
    source: dict[str, Any]
    classes: list[str] | None = None
    mean: list[float] | None = None
    std: list[float] | None = None
    white: float = 1.0
    size: int | None = None
    """length of the shorter side that it was trained for"""
    no_background: bool = False
    """whether its files say that it has no channel of background"""


def read_weights(path: Path) -> dict[str, Tensor]:
    """A flat dict of tensors from safetensors, or from a .pth, .pt, .bin or .ckpt with weights alone."""
    state = open_weights(path)
    for key in INSIDE:
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    if not isinstance(state, dict):
        raise UserError(f"{path} holds a {type(state).__name__}, not the weights of a network.")
    return {str(name): value for name, value in state.items() if isinstance(value, Tensor)}


def load_exactly(
    module: nn.Module, state: Mapping[str, Tensor], path: Path, extra: tuple[str, ...] = ()
) -> None:
    """Load weights; every name and shape must fit, but for the prefixes of wrappers.

    Modules called `extra` may be in the file without being needed: auxiliary heads.
    """
    own = module.state_dict()
    given = _without_prefixes(state, own)
    if extra:
        given = {
            name: value for name, value in given.items() if name in own or name.partition(".")[0] not in extra
        }
    lines = [f"'{name}' is missing" for name in own if name not in given]
    lines += [f"'{name}' is not part of the network" for name in given if name not in own]
    lines += [
        f"'{name}' has shape {tuple(given[name].shape)}, not {tuple(value.shape)}"
        for name, value in own.items()
        if name in given and given[name].shape != value.shape
    ]
    refuse(lines, path, module)
    if (broken := first_nan(given)) is not None:
        raise UserError(f"{path}: '{broken}' holds NaN: is the file damaged?")
    module.load_state_dict(given, strict=True)


def refuse(lines: list[str], path: Path, module: nn.Module) -> None:
    """Say in which names and shapes weights differ from a network, if they do."""
    if lines:
        shown = "\n  ".join(lines[:MOST_SHOWN])
        more = f"\n  and {len(lines) - MOST_SHOWN} more" if len(lines) > MOST_SHOWN else ""
        raise UserError(f"{path} does not fit {type(module).__name__}:\n  {shown}{more}")


def _without_prefixes(state: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    given = dict(state)
    while given and not set(given) & set(own):
        prefix = next((p for p in PREFIXES if all(name.startswith(p) for name in given)), None)
        if prefix is None:
            break
        given = {name.removeprefix(prefix): value for name, value in given.items()}
    return given


def names_of(table: Mapping[str, Any] | None) -> list[str] | None:
    """Names of the channels from a table channel -> name."""
    if not table or sorted(table) != sorted(map(str, range(len(table)))):
        return None
    return [str(table[str(channel)]) for channel in range(len(table))]
