"""A backbone that begins after its frozen stages, where their outputs are known already.

The weights of frozen stages are those of the teacher, too, and the same in every iteration. So their outputs
may come from elsewhere: whoever has them says so for some images (`known_maps`), and every network that is
given these very images inside goes on from there. Other images go through the whole backbone.

Backbones come from elsewhere, so the frozen modules are passed over one by one, not cut out; whether a
backbone allows that is tried on a picture (`can_begin_after`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn

SIZE = 64
"""pixels of the picture that is tried"""
TOLERANCE = 1e-5
"""allowed difference relative to a map's largest value"""

_known: ContextVar[tuple[Tensor, tuple[Tensor, ...]] | None] = ContextVar("_known", default=None)


@contextmanager
def known_maps(images_B3HW: Tensor, maps: tuple[Tensor, ...]) -> Iterator[None]:
    """Inside, the outputs of the frozen stages for these images are known: of the last one, or of each.

    Without maps nothing is known.
    """
    token = _known.set((images_B3HW, maps) if maps else None)
    try:
        yield
    finally:
        _known.reset(token)


def maps_of(images_B3HW: Tensor) -> tuple[Tensor, ...]:
    """What is known of these very images; nothing of equal ones."""
    known = _known.get()
    return known[1] if known is not None and known[0] is images_B3HW else ()


def outermost(backbone: nn.Module, modules: Sequence[nn.Module]) -> list[str]:
    """Names of those modules that lie in no other of them, in the order of the network."""
    wanted = set(modules)
    names = [name for name, module in backbone.named_modules() if module in wanted]
    return [name for name in names if not any(name.startswith(f"{other}.") for other in names)]


def begin_after(
    backbone: nn.Module, frozen: Sequence[str], maps: Sequence[Tensor], count: int
) -> list[Tensor]:
    """The backbone's stages, from the outputs of its first `count`, which the modules `frozen` make up.

    With the output of the last frozen stage alone the list begins there.
    """
    if count == len(backbone.channels):
        return list(maps)
    last = maps[-1]
    passed = {name: _Gives(None) for name in frozen[:-1]} | {frozen[-1]: _Gives(last)}
    with _replaced(backbone, passed):
        stages = list(backbone(last.new_zeros(len(last), 3, 8, 8)))
    return [*maps, *stages[count:]]


@torch.no_grad()
def frozen_maps(
    backbone: nn.Module, frozen: Sequence[str], images_B3HW: Tensor, count: int, every: bool
) -> tuple[Tensor, ...]:
    """The output of the last frozen stage, or of every one. Nothing behind the last is computed for it."""
    if every or count == len(backbone.channels):
        return tuple(backbone(images_B3HW)[:count][0 if every else -1 :])
    last = backbone.get_submodule(frozen[-1])
    with _replaced(backbone, {frozen[-1]: _Stops(last.forward)}):
        try:
            backbone(images_B3HW)
        except _Reached as reached:
            return (reached.output,)
    raise RuntimeError("the backbone does not use its frozen stages")


def can_begin_after(backbone: nn.Module, frozen: Sequence[str], count: int) -> bool:
    """Whether the stages are the same with the outputs of the frozen ones known; a copy is tried."""
    if not frozen:
        return False
    trial = copy.deepcopy(backbone).eval()
    parameter = next(trial.parameters())
    generator = torch.Generator().manual_seed(0)
    picture = torch.randn(1, 3, SIZE, SIZE, generator=generator).to(parameter)
    try:
        with torch.no_grad():
            expected = trial(picture)
            found = [
                begin_after(trial, frozen, frozen_maps(trial, frozen, picture, count, every), count)
                for every in (False, True)
            ]
    except (RuntimeError, AssertionError, TypeError, ValueError, IndexError):
        return False
    return all(
        ours.shape == theirs.shape and _close(ours, theirs)
        for maps in found
        for ours, theirs in zip(maps, expected[len(expected) - len(maps) :], strict=True)
    )


def _close(ours: Tensor, theirs: Tensor) -> bool:
    return bool((ours - theirs).abs().max() <= TOLERANCE * theirs.abs().max())


class _Gives:
    """A forward that computes nothing: it gives a known output, or its input."""

    def __init__(self, output: Tensor | None) -> None:
        self.output = output

    def __call__(self, x: Tensor) -> Tensor:
        return x if self.output is None else self.output


class _Reached(Exception):
    def __init__(self, output: Tensor) -> None:
        self.output = output


class _Stops:
    """A forward after which the pass ends."""

    def __init__(self, forward: Callable[[Tensor], Tensor]) -> None:
        self.forward = forward

    def __call__(self, x: Tensor) -> Tensor:
        raise _Reached(self.forward(x))


@contextmanager
def _replaced(backbone: nn.Module, forwards: dict[str, Callable[[Tensor], Tensor]]) -> Iterator[None]:
    """Some modules with another forward, afterwards with the one they had: it may be one of their own."""
    modules = [(backbone.get_submodule(name), forward) for name, forward in forwards.items()]
    own = [module.__dict__.get("forward") for module, _ in modules]
    for module, forward in modules:
        module.__dict__["forward"] = forward
    try:
        yield
    finally:
        for (module, _), forward in zip(modules, own, strict=True):
            if forward is None:
                del module.__dict__["forward"]
            else:
                module.__dict__["forward"] = forward
