"""Find z, the last map of a network's encoder, and what of the network comes before it.

z is smallest in size, has most channels, and the logits change when it does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from segue.core.errors import UserError
from segue.models.adopted import trees
from segue.models.adopted.parts import Parts
from segue.models.adopted.watch import Run, Watched, equal


@dataclass
class Encoded:
    name: str
    place: str
    map: Tensor
    stages: int


ENCODERS = ("backbone", "encoder", "segformer", "mobilevit", "mobilevitv2", "mobilenet_v2", "beit",
            "data2vec_vision", "dpt")  # fmt: skip
"""names that encoders have"""
DEPTH = 2
"""depth below the network at which a name counts"""


def find_z(module: nn.Module, seen: Watched, layers: list[Run], encoder: str | None) -> Encoded | None:
    """The last map of the encoder: named, else in a module that is called so, else the smallest map."""
    before = seen.outputs[: min(layer.turn for layer in layers)]
    candidates = [*_called_encoder(before, encoder)]
    if encoder is None:
        bare = [each for each in before if isinstance(each.y, Tensor)]
        candidates += sorted(
            (z for each in reversed(bare) for z in _proper_maps(each, seen.image)), key=_smallest_first
        )[:8]
    for z in candidates:
        if _matters(module, seen.image, z, layers):
            return z
    if encoder is not None:
        raise UserError(f"'{encoder}' hands out no map that the classifier {layers[0].name} depends on.")
    return None


def _called_encoder(before: Sequence[Run], encoder: str | None) -> Iterator[Encoded]:
    chosen = [
        each
        for each in before
        if each.name == encoder
        or (encoder is None and each.name.count(".") < DEPTH and each.name.split(".")[-1] in ENCODERS)
    ]
    for each in sorted(chosen, key=lambda each: each.name.count(".")):
        yield from sorted(reversed(_proper_maps(each)), key=_smallest_first)


def _proper_maps(each: Run, image: Tensor | None = None) -> list[Encoded]:
    """Maps of the whole image; not the pooled ones of attention or pyramids."""
    found = [(place, m) for place, m in trees.maps(each.y) if m is not each.x]
    maps = []
    for place, m in found:
        if image is not None:
            strides = [round(a / b) for a, b in zip(image.shape[-2:], m.shape[-2:], strict=True)]
            if min(m.shape[-2:]) < 2 or strides[0] != strides[1]:
                continue
        maps.append(Encoded(each.name, place, m, len(found)))
    return maps


def _smallest_first(z: Encoded) -> tuple[int, int]:
    """Smallest in size, then most channels; sorting leaves the last one first."""
    return z.map.shape[-1] * z.map.shape[-2], -z.map.shape[1]


def _matters(module: nn.Module, image: Tensor, z: Encoded, layers: list[Run]) -> bool:
    """Whether the logits change with this map."""
    said: list[Tensor] = []
    expected = layers[-1]

    def shift(_: nn.Module, inputs: Any, answer: Any) -> Any:
        with suppress(StopIteration):
            there = trees.at(answer, z.place)
            return trees.replaced(answer, lambda value: value + 1 if value is there else value)

    hooks = [
        module.get_submodule(z.name).register_forward_hook(shift),
        expected.module.register_forward_hook(lambda _, inputs, y: said.append(y)),
    ]
    try:
        module(image)
    finally:
        for hook in hooks:
            hook.remove()
    return bool(said) and not equal(said[-1], expected.y)


def dependence(module: nn.Module, image: Tensor, parts: Parts) -> dict[str, Any]:
    """Which parameters z and the logits depend on, as the names of the modules that hold them."""
    seen: dict[str, Any] = {}
    hooks = [
        module.get_submodule(path).register_forward_hook(
            lambda _, inputs, answer, name=path: seen.__setitem__(name, answer)
        )
        for path in {*parts.classifiers, *([parts.encoder] if parts.encoder is not None else [])}
    ]
    names, parameters = zip(*module.named_parameters(), strict=True)
    for parameter in parameters:
        parameter.requires_grad_(True)
    try:
        with torch.enable_grad():
            module(image)
    finally:
        for hook in hooks:
            hook.remove()

    def reached(value: Tensor) -> set[str]:
        if not value.requires_grad:
            return set()
        with torch.enable_grad():
            total = value.sum()
        grads = torch.autograd.grad(total, parameters, retain_graph=True, allow_unused=True)
        return {name for name, grad in zip(names, grads, strict=True) if grad is not None}

    used = set().union(*(reached(seen[path]) for path in parts.classifiers))
    before = reached(trees.at(seen[parts.encoder], parts.place)) if parts.encoder is not None else set()
    unused = set(names) - used
    return {
        "unused": _covering(module, unused, set()),
        "encoder_modules": _covering(module, before & used, unused),
    }


def _covering(module: nn.Module, wanted: set[str], either: set[str], prefix: str = "") -> list[str]:
    """The fewest names of modules and parameters that cover these parameters and no others."""
    found = [
        f"{prefix}{name}" for name, _ in module.named_parameters(recurse=False) if f"{prefix}{name}" in wanted
    ]
    for name, child in module.named_children():
        path = f"{prefix}{name}"
        inside = {f"{path}.{each}" for each, _ in child.named_parameters()}
        if inside & wanted and inside <= wanted | either:
            found.append(path)
        elif inside & wanted:
            found += _covering(child, wanted, either, f"{path}.")
    return found


def sizes_taken(module: nn.Module, seen: Watched) -> dict[str, Any]:
    """The smallest power of two whose odd multiples the network takes as sides, and the shortest side.

    Some take squares alone. A network that answers at the size of the image has to do so for these, too.
    """
    image, full = seen.image, seen.answer.shape[-2:] == seen.image.shape[-2:]

    def takes(height: int, width: int) -> bool:
        try:
            with torch.no_grad():
                answer = trees.logits_of(module(image.new_zeros(1, 3, height, width)))
        except Exception:  # whatever a foreign forward raises
            return False
        return answer is not None and (not full or answer.shape[-2:] == (height, width))

    for square in (False, True):
        for divisor in (1, 2, 4, 8, 16, 32, 64):
            height = 33 if divisor == 1 else 3 * divisor
            width = height if square else 65 if divisor == 1 else 5 * divisor
            if takes(height, width):
                shorter = (divisor * 2**power for power in range(6))
                least = next((side for side in shorter if side < height and takes(side, side)), height)
                return {"divisor": divisor, "square": square, "least": least}
    size = f"{image.shape[-2]} x {image.shape[-1]}"
    raise UserError(
        f"{type(module).__name__} takes images of {size} pixels, but not of 192 x 192 or 192 x 320: only a"
        " network that takes several sizes can be adopted."
    )
