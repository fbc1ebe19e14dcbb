"""An accelerator without one: tensors that say they are on a device of their own and compute on the CPU.

Each holds a tensor of the CPU. An operator that gets tensors of both places raises, as CUDA would; whatever
would make the host wait for the device is counted. Numbers are those of the CPU, so that code whose course
depends on values runs as always (with torch's FakeTensor it could not).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "fakegpu"
aten = torch.ops.aten
WAITS = {
    aten._local_scalar_dense.default: "item",
    aten.nonzero.default: "nonzero",
    aten.masked_select.default: "mask",
    aten.equal.default: "equal",
    aten.is_nonzero.default: "item",
    aten.unique_consecutive.default: "unique",
    aten._unique2.default: "unique",
    aten.bincount.default: "bincount",
    aten.repeat_interleave.Tensor: "repeat_interleave",
}
"""operators after which the host knows something of the device's numbers, or of their number"""
INDEXING = (aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default)
BETWEEN = (aten.copy_.default, aten._to_copy.default)
"""operators that may see both places"""


class MixedDevices(Exception):
    """Tensors of the device and of the CPU in one operator."""


class OnDevice(Tensor):
    """A tensor of the accelerator."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> OnDevice:
        made = Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), storage_offset=inner.storage_offset(),
            dtype=inner.dtype, layout=inner.layout, device=device(),
        )  # fmt: skip
        made.inner = inner
        return made

    def __repr__(self) -> str:
        return f"OnDevice({self.inner})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


class Accelerator(TorchDispatchMode):
    """While it is on, tensors can be made on the device; `waits` counts what makes the host wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[str] = Counter()

    def __enter__(self) -> Accelerator:
        _active.append(self)
        self._from_lists = _FromLists()
        self._from_lists.__enter__()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._from_lists.__exit__(*error)
        _active.remove(self)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})

    @contextmanager
    def counting(self) -> Iterator[Counter[str]]:
        """Waits inside the block alone."""
        before, self.waits = self.waits, Counter()
        try:
            yield self.waits
        finally:
            self.waits = before + self.waits


class _FromLists(TorchFunctionMode):
    """`torch.tensor([1, 2], device=...)` and `tolist` are no operators: lists are of the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        target = kwargs.get("device")
        if func in (torch.tensor, torch.as_tensor) and target is not None:
            return func(*args, **{**kwargs, "device": None}).to(target)
        if func is Tensor.__getitem__ and isinstance(args[0], OnDevice) and isinstance(args[1], tuple):
            args = args[0], tuple(torch.tensor(each) if isinstance(each, list) else each for each in args[1])
        if func is Tensor.tolist and isinstance(args[0], OnDevice):
            return args[0].cpu().tolist()
        return func(*args, **kwargs)


_active: list[Accelerator] = []


@cache
def device() -> torch.device:
    """The device. Ask for it before anything is differentiated: autograd makes its threads only once."""
    _setup_privateuseone_for_python_backend(NAME)
    getattr(torch, NAME).get_amp_supported_dtype = lambda: [torch.bfloat16, torch.float16]
    return torch.device(NAME, 0)


def _run(func: Any, args: Any, kwargs: Any) -> Any:
    given = [each for each in tree_iter((args, kwargs)) if isinstance(each, Tensor)]
    here = any(isinstance(each, OnDevice) for each in given)
    target = kwargs.get("device")
    wanted = here if target is None else torch.device(target).type == NAME
    if not here and not wanted:
        return func(*args, **kwargs)
    _check(func, given, kwargs, here, wanted)
    if target is not None and wanted:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    if here:
        _count(func, args, kwargs, wanted)
    plain_args, plain_kwargs = tree_map(_unwrap, (args, kwargs))
    out = func(*plain_args, **plain_kwargs)
    known = {id(each.inner): each for each in given if isinstance(each, OnDevice)}
    if not wanted or (func is aten.copy_.default and not isinstance(args[0], OnDevice)):
        originals = {id(each): each for each in given if not isinstance(each, OnDevice)}
        return tree_map(lambda each: originals.get(id(each), each), out)
    return tree_map(lambda each: known[id(each)] if id(each) in known else _wrap(each), out)


def _check(func: Any, given: list[Tensor], kwargs: Any, here: bool, wanted: bool) -> None:
    if here and func not in BETWEEN and func not in INDEXING:
        elsewhere = [each for each in given if not isinstance(each, OnDevice) and each.dim() > 0]
        if elsewhere:
            raise MixedDevices(f"{func}: a tensor of shape {tuple(elsewhere[0].shape)} is on the CPU")
    generator = kwargs.get("generator")
    if generator is not None and generator.device.type == "cpu" and (here or wanted):
        raise MixedDevices(f"{func}: a generator of the CPU cannot fill a tensor of the device")


def _count(func: Any, args: Any, kwargs: Any, stays: bool) -> None:
    kind = None if kwargs.get("output_size") is not None else WAITS.get(func)
    if func in INDEXING:
        indices = [each for each in args[1] if each is not None]
        if any(each.dtype in (torch.bool, torch.uint8) for each in indices):
            kind = "mask"
    elif (func is BETWEEN[1] and not stays) or (func is BETWEEN[0] and not isinstance(args[0], OnDevice)):
        kind = "to cpu"
    if kind is not None and _active:
        _active[-1].waits[kind] += 1


def _unwrap(value: Any) -> Any:
    return value.inner if isinstance(value, OnDevice) else value


def _wrap(value: Any) -> Any:
    return OnDevice(value) if isinstance(value, Tensor) and not isinstance(value, OnDevice) else value
