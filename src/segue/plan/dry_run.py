"""An iteration on paper: which tensors come and go, and how many FLOPs, without the arithmetic.

Everything runs as always, but a large result is not computed: it is zeros that no one has touched yet, which
the system gives for nothing. So the bytes of a large network are known in seconds and without its memory.
Small results, whole numbers and what is changed in place are computed, since the course of a loss may depend
on them.
"""

from __future__ import annotations

import math
import mmap
import weakref
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from torch.utils.flop_counter import flop_registry

LARGE = 2**18
"""bytes from which on a result is not computed"""


class DryRun(TorchDispatchMode):
    """`live` and `peak`: bytes of the tensors that were made inside and are still there, now and at most.

    FLOPs are counted here too: torch's `FlopCounterMode` keeps alive what activation checkpointing lets go.
    """

    def __init__(self, large: float = LARGE) -> None:
        """Results of `large` bytes are not computed; `math.inf` computes all."""
        super().__init__()
        self.large, self.live, self.peak, self.flops = large, 0, 0, 0
        self._known: dict[int, weakref.ref] = {}
        self._seen: dict[tuple, Any] = {}

    def lap(self) -> int:
        """The peak up to here; from here on a new one is looked for."""
        peak, self.peak = self.peak, self.live
        return peak

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if torch.is_inference_mode_enabled() and func._overloadpacket not in FORMULAS:
            with self:  # there compound operators come as a whole
                out = func.decompose(*args, **kwargs)
            if out is not NotImplemented:
                return out
        given = [*_tensors(args), *_tensors(kwargs.values())]
        for tensor in given:  # what was there before does not count when it is returned
            self._note(tensor, counts=False)
        out = self._result(func, args, kwargs, given)
        for tensor in _tensors([out]):
            self._note(tensor, counts=True)
        if formula := FORMULAS.get(func._overloadpacket):
            self.flops += formula(*args, **kwargs, out_val=out)
        return out

    def _note(self, tensor: Tensor, counts: bool) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes() if counts else 0
        if key in self._known:
            return

        def gone(_: weakref.ref) -> None:
            del self._known[key]
            self.live -= size

        self._known[key] = weakref.ref(storage, gone)
        self.live += size
        self.peak = max(self.peak, self.live)

    def _result(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], given: list[Tensor]) -> Any:
        if not given or sum(tensor.nbytes for tensor in given) < self.large:
            return func(*args, **kwargs)
        if any(argument.alias_info for argument in func._schema.arguments):  # a view, or a change in place
            skips = args and isinstance(args[0], Tensor) and func._schema.name.endswith("_")
            return args[0] if skips and self._is_skipped([args[0]]) else func(*args, **kwargs)
        shapes = self._shapes(func, args, kwargs)
        if shapes is None or not self._is_skipped(_tensors([shapes])):
            return func(*args, **kwargs)
        return tree_map_only(Tensor, lambda each: _untouched(each, given[0].device), shapes)

    def _shapes(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The result without its content; None if its shape depends on values. Blocks of a network repeat."""
        key = (func, *_key(args), *_key(kwargs.items()))
        if key not in self._seen:
            try:
                metas = tree_map_only(Tensor, _shape, (args, kwargs))
                self._seen[key] = func(*metas[0], **metas[1])
            except (RuntimeError, NotImplementedError):
                self._seen[key] = None
        return self._seen[key]

    def _is_skipped(self, results: list[Tensor]) -> bool:
        return (
            all(each.is_floating_point() for each in results)
            and sum(each.nbytes for each in results) >= self.large
        )


def _tensors(values: Iterable[Any]) -> list[Tensor]:
    """Those among values and lists of values: arguments of operators are no deeper."""
    found = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += [each for each in value if isinstance(each, Tensor)]
    return found


def _key(values: Iterable[Any]) -> Iterator[Hashable]:
    """What the shape of a result depends on."""
    for value in values:
        if isinstance(value, Tensor):
            yield value.shape, value.stride(), value.dtype
        elif isinstance(value, list | tuple):
            yield tuple(_key(value))
        else:
            yield value


def _shape(tensor: Tensor) -> Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def _untouched(shape: Tensor, device: torch.device) -> Tensor:
    """Zeros like this, in fresh pages of the system; torch would write into every one of them."""
    if device.type != "cpu":
        return torch.zeros_like(shape, device=device)
    pages = mmap.mmap(-1, max(shape.untyped_storage().nbytes(), 1))
    return (
        torch.frombuffer(pages, dtype=torch.uint8).view(shape.dtype).as_strided(shape.shape, shape.stride())
    )


def _gradients_of_convolution(
    gradient: Tensor, x: Tensor, weight: Tensor, *rest: Any, out_val: Any = None
) -> int:
    """Each costs what the forward pass does; torch's own formula forgets the groups."""
    transposed, output_mask = rest[4], rest[7]
    places = math.prod((x if transposed else gradient).shape[2:])
    return 2 * len(x) * places * weight.numel() * sum(output_mask[:2])


def _add_product(_into: Tensor, a: Tensor, b: Tensor, out_val: Any = None, **_: Any) -> int:
    """In place, which torch does not count."""
    return 2 * a.numel() * b.shape[-1]


aten = torch.ops.aten
FORMULAS = {
    **flop_registry,
    aten.convolution_backward: _gradients_of_convolution,
    aten.baddbmm_: _add_product,
}
"""FLOPs of operators, two for a multiply-add: convolutions, products of matrices, attention"""
