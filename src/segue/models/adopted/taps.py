"""Taps: where a pass through an adopted network is looked into, and where z is replaced on its way.

The network runs whole, as its authors wrote it. Three kinds of modules are tapped: the encoder, the layer
that gives h, and the classifiers. What passes is noted in the `Pass` of this very call: nothing is kept in
the network, so it can be copied, and several threads can use it. Without a pass a tap does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from segue.models.adopted import trees


class Reached(Exception):
    """No error: what was wanted of a pass is there, and the rest of the network's forward is left out."""


@dataclass
class Pass:
    """One call of an adopted network, and what has been seen of it."""

    until: str = "logits"
    """the pass ends when this is known: z, h or logits"""
    fuse: Callable[[Tensor], Tensor] | None = None
    """function from z to the map that takes its place"""
    layers: int = 1
    """number of classifiers whose outputs are added up"""
    settle: Callable[[Tensor], Tensor] | None = None
    """fixed layers at the end of the encoder"""
    stages: list[Tensor] = field(default_factory=list)
    z: Tensor | None = None
    z_fused: Tensor | None = None
    h: Tensor | None = None
    """map that stands before the dropout or after the module that the user named"""
    inputs: dict[int, Tensor] = field(default_factory=dict)
    logits: dict[int, Tensor] = field(default_factory=dict)

    def leave(self) -> None:
        """Go no further, unless the pass is being traced: a graph has no exceptions."""
        if not (torch.jit.is_tracing() or torch.compiler.is_compiling()):
            raise Reached


_PASS: ContextVar[Pass | None] = ContextVar("pass", default=None)


@contextmanager
def passing(seen: Pass) -> Iterator[None]:
    """Inside, taps note what they see in `seen`; the body ends when all that is wanted is known."""
    before = _PASS.set(seen)
    try:
        yield
    except Reached:
        pass
    finally:
        _PASS.reset(before)


class EncoderTap:
    """On the encoder: notes its maps, and puts the fused map in the place of z."""

    def __init__(self, place: str) -> None:
        self.place = place

    def __call__(self, module: nn.Module, inputs: Any, answer: Any) -> Any:
        seen = _PASS.get()
        if seen is None:
            return None
        plain = z = trees.at(answer, self.place)
        if seen.settle is not None:
            z = seen.settle(plain)
        given = [value for value in inputs if isinstance(value, Tensor)]
        others = [m for _, m in trees.maps(answer) if m is not plain and all(m is not x for x in given)]
        seen.stages = [*others, z]
        seen.z = z
        if seen.until == "z":
            seen.leave()
        seen.z_fused = fused = z if seen.fuse is None else seen.fuse(z)
        if fused is plain:
            return None
        return trees.replaced(answer, lambda value: fused if value is plain else value)


class InputTap:
    """On a dropout before the classifier: its input is h, whatever it drops."""

    def __call__(self, module: nn.Module, inputs: Any) -> None:
        if (seen := _PASS.get()) is not None:
            _note_h(seen, inputs[0])


class OutputTap:
    """On a module that the user named: its output is h."""

    def __call__(self, module: nn.Module, inputs: Any, answer: Any) -> None:
        if (seen := _PASS.get()) is not None:
            _note_h(seen, answer)


def _note_h(seen: Pass, h: Tensor) -> None:
    seen.h = h
    if seen.until == "h" and seen.layers == 1:
        seen.leave()


def classified(layer: nn.Module, x: Tensor, logits: Tensor) -> Tensor:
    """A classifier was run: note what it saw and said."""
    if (seen := _PASS.get()) is not None:
        seen.inputs[id(layer)], seen.logits[id(layer)] = x, logits
        if len(seen.logits) == seen.layers:
            seen.leave()
    return logits
