"""A backbone that begins after its frozen stages, where their outputs are known already.

The weights of frozen stages are those of the teacher, too, and the same in every iteration. So their outputs
may come from elsewhere: whoever has them says so for some images (`known_maps`), and every network that is
given these very images inside goes on from there. Other images go through the whole backbone.

Backbones come from elsewhere, so the frozen modules are passed over one by one, not cut out; whether a
backbone allows that is tried on a picture (`FrozenPart.fits`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
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


class FrozenPart:
    """The first stages of a backbone, and blocks of the next one, by the names of their modules.

    So the backbone may be copied or folded.
    """

    def __init__(self, backbone: nn.Module, count: int, blocks: int = 0) -> None:
        parts = [outermost(backbone, backbone.first_stages(n)) for n in range(1, count + 1)]
        if blocks:
            parts.append(outermost(backbone, backbone.first_stages(count, blocks)))
        self.count, self.blocks, self.whole = count, blocks, count == len(backbone.channels)
        self.ends = [names[-1] for names in parts]
        """modules whose outputs are those of the stages, and of the last block"""
        self.passed = parts[-1][:-1] if parts else []
        """modules before the last end"""

    def begin_after(self, backbone: nn.Module, maps: Sequence[Tensor]) -> list[Tensor]:
        """The backbone's stages, from the outputs of this part.

        With the last output alone the list begins there.
        """
        if self.whole:
            return list(maps)
        last = maps[-1]
        with _replaced(backbone, {**{name: _same for name in self.passed}, self.ends[-1]: lambda _: last}):
            stages = backbone(last.new_zeros(len(last), 3, 8, 8))
        known = maps[:-1] if self.blocks else maps  # a block inside a stage is no stage
        return [*known, *stages[self.count :]]

    @torch.no_grad()
    def maps(self, backbone: nn.Module, images_B3HW: Tensor, every: bool) -> tuple[Tensor, ...]:
        """The last output of this part, or all of them. The pass ends there, and alters no statistics."""
        if self.whole:
            return tuple(backbone(images_B3HW))[0 if every else -1 :]
        found: list[Tensor] = []
        forwards = {name: backbone.get_submodule(name).forward for name in self.ends}
        noted = {name: _Noted(each, found, name == self.ends[-1]) for name, each in forwards.items()}
        with _replaced(backbone, noted), suppress(_Reached):
            backbone(images_B3HW)
        return tuple(found[0 if every else -1 :])

    def fits(self, backbone: nn.Module) -> bool:
        """Whether the stages are the same with the outputs of the first ones known; a copy is tried."""
        if not self.ends:
            return False
        trial = copy.deepcopy(backbone).eval()
        picture = torch.randn(1, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(0))
        picture = picture.to(next(trial.parameters()))
        try:
            with torch.no_grad():
                expected = trial(picture)
                found = [self.begin_after(trial, self.maps(trial, picture, every)) for every in (False, True)]
        except (RuntimeError, AssertionError, TypeError, ValueError, IndexError):
            return False
        return len(found[1]) == len(expected) and all(
            ours.shape == theirs.shape and _close(ours, theirs)
            for maps in found
            for ours, theirs in zip(maps, expected[len(expected) - len(maps) :], strict=True)
        )


def _close(ours: Tensor, theirs: Tensor) -> bool:
    return bool((ours - theirs).abs().max() <= TOLERANCE * theirs.abs().max())


def _same(x: Tensor) -> Tensor:
    return x


class _Reached(Exception):
    """The pass has come to the end of what is frozen."""


class _Noted:
    """A forward whose output is noted; the last one ends the pass."""

    def __init__(self, forward: Callable[[Tensor], Tensor], outputs: list[Tensor], last: bool) -> None:
        self.forward, self.outputs, self.last = forward, outputs, last

    def __call__(self, x: Tensor) -> Tensor:
        self.outputs.append(self.forward(x))
        if self.last:
            raise _Reached
        return self.outputs[-1]


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
