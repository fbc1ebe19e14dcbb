"""Find the classifier, h and z of a network without knowing its family: by watching it, and by proof.

A candidate for the classifier is a convolution with one output per class. It is the one if its output,
resized as networks do it, is the network's answer, whatever that output is: random numbers are put in its
place. h is its input. What cannot be proven is refused, never
guessed.

Shapes: one image of 3 x H x W, K channels, h x w.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from segue.core.errors import UserError
from segue.models.adopted import trees
from segue.models.adopted.find_encoder import Encoded, dependence, find_z, sizes_taken
from segue.models.adopted.parts import Parts
from segue.models.adopted.watch import Run, Watched, equal, watch
from segue.models.network import Resize, at_size

MOST_SUMMED = 3
"""classifiers whose outputs may be added up"""
ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "": lambda x: x,
    "softmax": lambda x: x.softmax(1),
    "log_softmax": lambda x: x.log_softmax(1),
    "sigmoid": lambda x: x.sigmoid(),
}
RESIZES: tuple[Resize, ...] = ("bilinear", "aligned", "nearest")


def find_parts(
    module: nn.Module,
    classifier: str | Sequence[str] | None = None,
    features: str | None = None,
    encoder: str | None = None,
) -> Parts:
    """The parts of a network in test mode; what is named is proven, what is not is searched for."""
    seen = watch(module)
    with torch.no_grad():
        proof = _classifiers(module, seen, _named(classifier))
        parts = Parts([layer.name for layer in proof.layers], proof.resize, inner=proof.inner,
                      inner_factor=proof.factor)  # fmt: skip
        parts = replace(parts, **_h(module, seen, proof.layers, features))
        z = find_z(module, seen, proof.layers, encoder)
    if z is not None:
        parts = replace(parts, encoder=z.name, place=z.place, z_channels=z.map.shape[1], stages=z.stages)
    parts = replace(parts, **sizes_taken(module, seen), **dependence(module, seen.image, parts))
    return replace(parts, told=_told(seen, proof, parts, z))


def _named(classifier: str | Sequence[str] | None) -> list[str]:
    return [classifier] if isinstance(classifier, str) else list(classifier or ())


# The classifier


@dataclass
class _Proof:
    layers: list[Run]
    resize: Resize
    inner: Resize | None = None
    factor: int = 1
    activation: str = ""


def _classifiers(module: nn.Module, seen: Watched, named: Sequence[str]) -> _Proof:
    """The layers whose outputs, added up and resized, are the answer."""
    channels = seen.answer.shape[1]
    runs = Counter(layer.name for layer in seen.layers)
    fitting = [layer for layer in seen.layers if _fits(layer, channels) and runs[layer.name] == 1]
    if named:
        groups = [[layer for layer in fitting if layer.name in named]]
        if len(groups[0]) != len(set(named)):
            raise _not_named(named, fitting, channels)
    else:
        main = [layer for layer in fitting if "aux" not in layer.name]
        groups = [main[-count - skip : len(main) - skip] for count in range(1, MOST_SUMMED + 1)
                  for skip in range(min(2, len(main))) if count + skip <= len(main)]  # fmt: skip
    for group in groups:
        if (proof := _proof(module, group, seen)) is not None:
            return _checked(proof, channels)
    names = ", ".join(layer.name for layer in fitting) or "none"
    raise UserError(
        f"The classifier cannot be proven: the network answers with {channels} channels, but no convolution's"
        f" output, resized, is that answer (candidates with {channels} outputs: {names}). Name the layer that"
        " gives the logits (classifier='PATH', adopt.classifier=PATH), or hand in the network without"
        " what follows it."
    )


def _fits(layer: Run, channels: int) -> bool:
    y = layer.y
    return isinstance(layer.module, nn.Conv2d) and isinstance(y, Tensor) and y.shape[1] == channels


def _not_named(named: Sequence[str], fitting: Sequence[Run], channels: int) -> UserError:
    there = [layer.name for layer in fitting]
    missing = next(name for name in named if name not in there)
    return UserError(
        f"'{missing}' is no convolution with {channels} outputs that the network runs; there are"
        f" {', '.join(there) or 'none'}."
    )


def _proof(module: nn.Module, group: list[Run], seen: Watched) -> _Proof | None:
    """How the answer follows from what these layers say; None: it does not, or not from them alone."""
    if len({layer.y.shape for layer in group}) != 1:
        return None
    generator = torch.Generator().manual_seed(1)
    said = [torch.randn(layer.y.shape, generator=generator).to(layer.y) for layer in group]
    hooks = [
        layer.module.register_forward_hook(lambda *_, value=value: value)
        for layer, value in zip(group, said, strict=True)
    ]
    try:
        answer = trees.logits_of(module(seen.image))
    finally:
        for hook in hooks:
            hook.remove()
    a = sum(said)
    if answer is None or answer.shape != seen.answer.shape:
        return None
    own, full = a.shape[-2:] == answer.shape[-2:], answer.shape[-2:] == seen.image.shape[-2:]
    for name, activate in ACTIVATIONS.items():
        for resize in RESIZES:
            if equal(activate(_resized(a, answer, resize)), answer):
                if own or full:
                    return _Proof(group, "bilinear" if own else resize, activation=name)
                factor = answer.shape[-2] // a.shape[-2]
                return _Proof(group, "bilinear", resize, factor, name)
    return None


def _resized(a: Tensor, like: Tensor, resize: Resize) -> Tensor:
    size = like.shape[-2:]
    return a if a.shape[-2:] == size else at_size(a, size, resize)


def _checked(proof: _Proof, channels: int) -> _Proof:
    """Layers that can grow, and an answer of one class per pixel."""
    if proof.activation == "sigmoid" and channels > 1:
        raise UserError(
            f"The network ends in a sigmoid over {channels} channels: several classes per pixel (multilabel)."
            " Segue's models give every pixel one class."
        )
    for layer in proof.layers:
        if layer.module.groups != 1:
            raise UserError(f"The classifier {layer.name} has groups={layer.module.groups}: it cannot grow.")
    return proof


# h


def _h(module: nn.Module, seen: Watched, layers: list[Run], features: str | None) -> dict[str, Any]:
    """The map that the classifier sees: before a dropout, or what a named module hands out."""
    if features is not None:
        named = [each for each in seen.outputs if each.name == features and isinstance(each.y, Tensor)]
        same = named and len(layers) == 1 and named[-1].y.shape == layers[0].x.shape
        if not (same and equal(named[-1].y, layers[0].x)):
            raise UserError(
                f"'{features}' does not hand out the map that the classifier {layers[0].name} sees."
            )
        return {"after": features}
    if len(layers) > 1:
        return {}
    x = layers[0].x
    for each in reversed(seen.outputs[: layers[0].turn]):
        dropout = isinstance(each.module, nn.Dropout | nn.Dropout2d)
        if dropout and isinstance(each.x, Tensor) and each.x.shape == x.shape and torch.equal(each.x, x):
            return {"before": each.name}
    return {}


# In words

HOW = {"bilinear": "bilinear", "aligned": "bilinear with aligned corners", "nearest": "nearest"}


def _told(seen: Watched, proof: _Proof, parts: Parts, z: Encoded | None) -> list[list[str]]:
    """Each part, for the user to compare with what he knows."""

    def stride(m: Tensor) -> str:
        return f"1/{round(seen.image.shape[-1] / m.shape[-1])}"

    rows = []
    for layer in proof.layers:
        conv = layer.module
        kernel = " x ".join(str(side) for side in conv.kernel_size)
        kind = f"{type(conv).__name__} {conv.in_channels} -> {conv.out_channels}, {kernel}"
        rows.append(["classifier", f"{layer.name} ({kind})"])
    where = parts.before or parts.after or parts.classifiers[0]
    width = sum(layer.module.in_channels for layer in proof.layers)
    side = "output" if parts.after else "input"
    rows.append(["h", f"{side} of {where}: {width} channels at {stride(proof.layers[0].x)}"])
    if z is None:
        rows.append(["z", "not found: methods that need it are refused, unless the encoder is named"])
    else:
        at = f" at {parts.place}" if parts.place else ""
        rows.append(["z", f"output of {z.name}{at}: {z.map.shape[1]} channels at {stride(z.map)}"])
    times = round(seen.answer.shape[-1] / proof.layers[0].y.shape[-1])
    ending = "" if times == 1 else f", {HOW[parts.inner or parts.resize]} x {times}"
    what = "sum of the classifiers" if len(proof.layers) > 1 else "output of the classifier"
    rows.append(["answer", what + ending + (f", {proof.activation}" if proof.activation else "")])
    if parts.divisor > 1 or parts.square:
        shape = "squares" if parts.square else "images"
        rows.append(["sizes", f"{shape} of multiples of {parts.divisor} pixels; others are padded"])
    if parts.least > parts.divisor:
        rows.append(["least side", f"{parts.least} pixels; smaller images are padded"])
    if parts.unused:
        rows.append(["not used", ", ".join(parts.unused[:5]) + (" ..." if len(parts.unused) > 5 else "")])
    return rows
