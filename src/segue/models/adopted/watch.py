"""Watch one pass through a network: which modules ran, in which order, with what."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from segue.core.errors import UserError
from segue.models.adopted import trees

SIZES = ((96, 128), (224, 224), (256, 256), (512, 512))
"""height and width of the images that are tried"""
TOLERANCE = 1e-4
"""allowed difference relative to the largest value: float32 in another order"""


@dataclass
class Run:
    """A convolution or linear layer as it was run."""

    name: str
    module: nn.Module
    x: Any
    y: Any
    turn: int


@dataclass
class Watched:
    """One pass: which layers ran when, and the answer."""

    image: Tensor
    answer: Tensor
    layers: list[Run]
    outputs: list[Run]
    """all modules that hand out maps"""


def watch(module: nn.Module) -> Watched:
    problem: Exception | None = None
    for height, width in SIZES:
        generator = torch.Generator().manual_seed(0)
        image = torch.randn(1, 3, height, width, generator=generator)
        image = image.to(next((p for p in module.parameters()), image))
        try:
            with torch.no_grad(), _hooked(module) as layers:
                answer = module(image)
        except Exception as error:  # whatever a foreign forward raises
            problem = problem or error
            continue
        logits = trees.logits_of(answer)
        if logits is None:
            raise UserError(
                f"{type(module).__name__} answers with {_kind(answer)}: what is needed is a map of scores"
                " (B x K x h x w), alone, first of a tuple, or under out, logits, pred or masks."
            )
        simple = [each for each in layers if isinstance(each.module, nn.Conv2d | nn.Linear)]
        return Watched(image, logits, simple, layers)
    first = str(problem).strip().splitlines()[:1]
    raise UserError(
        f"{type(module).__name__} cannot be run on an image (1 x 3 x 96 x 128 or larger squares):"
        f" {type(problem).__name__}: {first[0] if first else ''}"
    )


@contextmanager
def _hooked(module: nn.Module) -> Iterator[list[Run]]:
    layers: list[Run] = []

    def hook(name: str) -> Callable[..., None]:
        def note(each: nn.Module, inputs: Any, output: Any) -> None:
            layers.append(Run(name, each, inputs[0] if inputs else None, output, len(layers)))

        return note

    hooks = [each.register_forward_hook(hook(name)) for name, each in module.named_modules() if name]
    try:
        yield layers
    finally:
        for each in hooks:
            each.remove()


def _kind(answer: Any) -> str:
    if isinstance(answer, Tensor):
        return f"a tensor of shape {tuple(answer.shape)}"
    there = [f"{place} {tuple(value.shape)}" for place, value in trees.tensors(answer)]
    return f"{type(answer).__name__} of {', '.join(there[:4]) or 'no tensors'}"


def equal(ours: Tensor, theirs: Tensor) -> bool:
    """The same numbers, up to rounding."""
    return bool((ours - theirs).abs().max() <= TOLERANCE * theirs.abs().max().clamp_min(1e-12))
