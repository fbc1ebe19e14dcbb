"""What a model has learned before a run: where `segue extend` begins instead of at step 0.

A model outside its run has its network and what its method keeps. Together they are the method's state after
a finished step, so a run that begins with them goes on exactly as the run would have that made the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from segue.core.errors import UserError
from segue.engine.checkpoint import load_strictly
from segue.methods.base import Method
from segue.models.network import Network
from segue.models.outer import Outer, OuterTeacher

MODEL = "model."
"""prefix of the network in the state of a method"""


@dataclass(frozen=True)
class Learned:
    """A model after some steps, as a run can begin with it."""

    network: Mapping[str, Tensor]
    """state of the network that predicts"""
    kept: Mapping[str, Tensor]
    """rest of the method's state; empty: nothing was kept, or it is another method's"""
    source: str
    """place of the model, for messages"""
    module: nn.Module | None = None
    """the user's own module that the network was adopted from, if no recipe can build it"""
    teacher: Outer | None = None
    """model from which the network, new as it is, learns the first steps' classes; None: it knows them"""


def kept_state(method: Method, network: Network) -> dict[str, Tensor]:
    """What of a method's state the network that predicts does not hold."""
    known = network.state_dict()
    return {
        name: tensor.detach().cpu().contiguous()
        for name, tensor in method.state_dict().items()
        if not _same(known.get(name.removeprefix(MODEL)) if name.startswith(MODEL) else None, tensor)
    }


def begin_with(method: Method, learned: Learned) -> tuple[str, ...]:
    """Bring a method, grown through the learned steps, to where the model is.

    Returns the names of what the model does not tell: those tensors stay as the method made them.
    """
    fresh = method.state_dict()
    network = {f"{MODEL}{name}": tensor for name, tensor in learned.network.items()}
    told = network | dict(learned.kept)
    for what, names in (("has", network), ("keeps", learned.kept)):
        if unknown := [name for name in names if name not in fresh]:
            if "classifier" in method.needs:
                raise UserError(
                    f"{type(method).__name__} has a classifier of its own, trained from the first step on: it"
                    f" cannot go on with {learned.source}. caf, mib and others take a model as it is."
                )
            raise UserError(
                f"{learned.source} {what} '{unknown[0]}', with which {type(method).__name__} cannot go on:"
                " extend it with the method that made it."
            )
    state = {name: told.get(name, tensor) for name, tensor in fresh.items()}
    load_strictly(method, state, Path(learned.source))
    return tuple(name for name in fresh if name not in told)


def set_teacher(method: Method, learned: Learned | None) -> None:
    """Let a method that has grown for its first own step learn from an outer teacher, if there is one."""
    if learned is not None and learned.teacher is not None:
        method.teacher = OuterTeacher(learned.teacher, method.deployed())  # type: ignore[assignment]
        method.model.closed = learned.teacher.closed


def _same(a: Tensor | None, b: Tensor) -> bool:
    return a is not None and a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.cpu(), b.cpu())
