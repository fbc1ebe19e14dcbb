"""Batch norm with fixed statistics, folded into the convolutions before it.

With running statistics a norm is a scale and a shift per channel, which the convolution can do itself: no
pass over the map, and no map of its own to remember for the backward pass. In training (`train.norm: frozen`)
the weights are scaled anew each time, a small thing, and gradients flow through that to the weights of both;
norms that take the statistics of their batch work as ever. A teacher is folded for good.

Which convolutions a norm follows is seen by watching one pass, since backbones come from elsewhere; the
outcome is compared on other pictures with other statistics, and what alters it is left as it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

SIZE = 64
"""pixels of the pictures that are tried"""
TOLERANCE = 1e-4
"""allowed difference relative to a map's largest value: float32 through a hundred layers"""

Maps = Callable[[Tensor], Sequence[Tensor]]


class _Conv:
    """The forward of a convolution whose norm may be folded into it; copied together with it."""

    def __init__(self, conv: nn.Conv2d, norm: _BatchNorm, channels: slice) -> None:
        self.conv, self.norm, self.channels = conv, norm, channels

    def __call__(self, x_BChw: Tensor) -> Tensor:
        plain = type(self.conv).forward
        if self.norm.training:
            return plain(self.conv, x_BChw)
        weight, bias = self.folded()
        # a stand-in for this one call: the convolution itself stays as it is, also for other threads
        folded = object.__new__(type(self.conv))
        folded.__dict__ = {**self.conv.__dict__, "weight": weight, "bias": bias}
        return plain(folded, x_BChw)

    def folded(self) -> tuple[Tensor, Tensor]:
        """Weight and bias that do the work of both."""
        conv, norm, part = self.conv, self.norm, self.channels
        scale_C = (norm.running_var[part] + norm.eps).rsqrt()
        scale_C = scale_C if norm.weight is None else scale_C * norm.weight[part]
        shift_C = -norm.running_mean[part] * scale_C
        shift_C = shift_C if norm.bias is None else shift_C + norm.bias[part]
        shift_C = shift_C if conv.bias is None else shift_C + conv.bias * scale_C
        return conv.weight * scale_C[:, None, None, None], shift_C


class _Norm:
    """The forward of a norm whose scale and shift are done already."""

    def __init__(self, norm: _BatchNorm) -> None:
        self.norm = norm

    def __call__(self, x_BChw: Tensor) -> Tensor:
        if self.norm.training:
            return type(self.norm).forward(self.norm, x_BChw)
        for part in rest_of(self.norm):
            x_BChw = part(x_BChw)
        return x_BChw


def rest_of(norm: _BatchNorm) -> list[nn.Module]:
    """What timm's norms do besides."""
    return [getattr(norm, name) for name in ("drop", "act") if hasattr(norm, name)]


@dataclass
class _Pair:
    """A norm and the convolutions whose outputs, side by side, are its input."""

    norm: _BatchNorm
    convs: list[nn.Conv2d]

    def link(self) -> None:
        start = 0
        for conv in self.convs:
            conv.forward = _Conv(conv, self.norm, slice(start, start + conv.out_channels))
            start += conv.out_channels
        self.norm.forward = _Norm(self.norm)

    def unlink(self) -> None:
        for module in (*self.convs, self.norm):
            del module.forward


def _single(pairs: list[_Pair]) -> list[_Pair]:
    """Those that share no module with another; a pair that comes twice counts once."""
    different = list({(pair.norm, *pair.convs): pair for pair in pairs}.values())
    uses = Counter(module for pair in different for module in (pair.norm, *pair.convs))
    return [pair for pair in different if all(uses[module] == 1 for module in (pair.norm, *pair.convs))]


def link_norms(model: nn.Module, maps: Maps) -> None:
    """From now on norms are folded whenever their statistics are fixed. Weights keep their names and places.

    `maps` gives everything that the model is used for. No global random numbers are drawn. A norm may change
    its class afterwards, but must not be replaced: `unlink_norms` first.
    """
    if any(parameter.is_meta for parameter in model.parameters()):
        return  # nothing can be tried
    generator = torch.Generator().manual_seed(0)
    seen, other = _pictures(model, 2, generator).unbind()
    with torch.no_grad(), _testing(model), _shaken(model, generator):
        try:
            with _watched(model) as pairs:
                maps(seen)
            expected = maps(other)
        except (RuntimeError, AssertionError, ValueError):  # a network that takes no pictures of this size
            return
        _link_checked(_single(pairs), maps, other, expected)


def following_norms(model: nn.Module, maps: Maps) -> list[tuple[_BatchNorm, nn.Conv2d]]:
    """The norms that follow one convolution alone, with it; nothing may be linked."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad(), _testing(model), _watched(model) as pairs:
        maps(_pictures(model, 1, generator)[0])
    return [(pair.norm, pair.convs[0]) for pair in _single(pairs) if len(pair.convs) == 1]


def _pictures(model: nn.Module, count: int, generator: torch.Generator) -> Tensor:
    """Batches of one picture each, where the model is."""
    made = torch.randint(0, 256, (count, 1, 3, SIZE, SIZE), generator=generator)
    return made.to(next(model.parameters(), made).device)  # a bare classifier has none but its rows


def unlink_norms(model: nn.Module) -> None:
    """Norms work as ever again."""
    for module in model.modules():
        if isinstance(module.__dict__.get("forward"), _Conv | _Norm):
            del module.forward


def fold_norms(model: nn.Module) -> None:
    """Fold for good what is linked: for a model that is not trained any more."""
    for module in model.modules():
        if isinstance(linked := module.__dict__.get("forward"), _Conv):
            with torch.no_grad():
                weight, bias = linked.folded()
            module.weight, module.bias = (nn.Parameter(x, requires_grad=False) for x in (weight, bias))
            del module.forward
    for name, module in list(model.named_modules()):
        if isinstance(module.__dict__.get("forward"), _Norm):
            parent, _, own = name.rpartition(".")
            rest = rest_of(module)
            setattr(model.get_submodule(parent), own, nn.Sequential(*rest) if rest else nn.Identity())


def _link_checked(pairs: list[_Pair], maps: Maps, images: Tensor, expected: Sequence[Tensor]) -> None:
    """Link these pairs; if that alters the maps, find the culprits by halves and leave them as they were."""
    for pair in pairs:
        pair.link()
    if all(_close(ours, theirs) for ours, theirs in zip(maps(images), expected, strict=True)):
        return
    for pair in pairs:
        pair.unlink()
    if len(pairs) > 1:
        middle = len(pairs) // 2
        _link_checked(pairs[:middle], maps, images, expected)
        _link_checked(pairs[middle:], maps, images, expected)


def _close(ours: Tensor, theirs: Tensor) -> bool:
    return bool((ours - theirs).abs().max() <= TOLERANCE * theirs.abs().max())


@contextmanager
def _testing(model: nn.Module) -> Iterator[None]:
    """Test mode, and afterwards every part in the mode it was in."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


@contextmanager
def _shaken(model: nn.Module, generator: torch.Generator) -> Iterator[None]:
    """Norms as after training: at the start most of them change nothing, folded or not."""
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    kept = [(tensor, tensor.clone()) for norm in norms for tensor in norm.state_dict(keep_vars=True).values()]
    for norm in norms:
        for tensor in (norm.running_mean, norm.bias, norm.running_var, norm.weight):
            if tensor is not None:
                tensor.copy_(torch.rand(tensor.shape, generator=generator) * 0.5)
        for tensor in (norm.running_var, norm.weight):
            if tensor is not None:
                tensor += 0.75
    try:
        yield
    finally:
        for tensor, value in kept:
            tensor.copy_(value)


@contextmanager
def _watched(model: nn.Module) -> Iterator[list[_Pair]]:
    """The pairs that a pass shows."""
    pairs: list[_Pair] = []
    outputs: list[tuple[nn.Conv2d, Tensor]] = []

    def after_conv(conv: nn.Conv2d, _: tuple[Tensor], output: Tensor) -> None:
        outputs.append((conv, output))

    def before_norm(norm: _BatchNorm, inputs: tuple[Tensor]) -> None:
        if norm.running_mean is not None and (convs := _sources(outputs, inputs[0])):
            pairs.append(_Pair(norm, convs))

    hooks = []
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            hooks.append(module.register_forward_hook(after_conv))
        elif isinstance(module, _BatchNorm):
            hooks.append(module.register_forward_pre_hook(before_norm))
    try:
        yield pairs
    finally:
        for hook in hooks:
            hook.remove()


def _sources(outputs: list[tuple[nn.Conv2d, Tensor]], x: Tensor) -> list[nn.Conv2d]:
    """The convolutions that gave a norm's input: one alone, or the last few side by side."""
    for conv, output in outputs:
        if output is x:
            return [conv]
    last: list[tuple[nn.Conv2d, Tensor]] = []
    for each in reversed(outputs):
        last.insert(0, each)
        width = sum(output.shape[1] for _, output in last)
        if each[1].shape[2:] != x.shape[2:] or width > x.shape[1]:
            return []
        if width == x.shape[1]:
            same = torch.equal(torch.cat([output for _, output in last], dim=1), x)
            return [conv for conv, _ in last] if same else []
    return []
