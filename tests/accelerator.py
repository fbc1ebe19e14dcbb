"""An accelerator without one: tensors that say they are on a device of their own and compute on the CPU.

Each holds a tensor of the CPU. An operator that gets tensors of both places raises, as CUDA would; whatever
would make the host wait for the device is counted. Numbers are those of the CPU, so that code whose course
depends on values runs as always (with torch's FakeTensor it could not).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "fakegpu"
AUTOCAST = "AutocastPrivateUse1"
PRODUCTS = ("conv2d", "linear", "matmul", "mm", "bmm")
"""operators that autocast narrows; there are more on CUDA"""
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
COPY = aten.copy_.default
BETWEEN = (COPY, aten._to_copy.default)
"""operators that may see both places"""
CPU = torch.device("cpu")


class MixedDevices(Exception):
    """Tensors of the device and of the CPU in one operator."""


class NoDoubles(Exception):
    """Double precision on a device that has none."""


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
    """While it is on, tensors can be made on the device; `waits` counts what makes the host wait.

    Without `doubles` the device has no double precision, as MPS.
    """

    def __init__(self, doubles: bool = True) -> None:
        super().__init__()
        self.doubles = doubles
        self.waits: Counter[str] = Counter()

    def __enter__(self) -> Accelerator:
        _active.append(self)
        self._around = ExitStack()
        self._around.enter_context(_NoOperators())
        # of inference mode, which is no_grad and a promise, wrappers know nothing
        self._around.enter_context(patch.object(torch.inference_mode, "__enter__", _begin_without_gradients))
        self._around.enter_context(patch.object(torch.inference_mode, "__exit__", _end_without_gradients))
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._around.close()
        _active.remove(self)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})

    @contextmanager
    def off(self) -> Iterator[None]:
        """For what sees nothing of the device, and cannot work beside modes: tracing of a graph."""
        self.__exit__(None, None, None)
        try:
            yield
        finally:
            self.__enter__()

    @contextmanager
    def counting(self) -> Iterator[Counter[str]]:
        """Waits inside the block alone."""
        before, self.waits = self.waits, Counter()
        try:
            yield self.waits
        finally:
            self.waits = before + self.waits


class _NoOperators(TorchFunctionMode):
    """What is done without operators: lists and numbers are of the CPU, and memory may be pinned."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        target = kwargs.get("device")
        if func in (torch.tensor, torch.as_tensor) and target is not None:
            return func(*args, **{**kwargs, "device": None}).to(target)
        if func is Tensor.new_tensor and isinstance(args[0], OnDevice):
            return torch.tensor(*args[1:], **{"dtype": args[0].dtype, **kwargs}).to(args[0].device)
        if func is Tensor.pin_memory:
            return args[0]
        if func is Tensor.__getitem__ and isinstance(args[0], OnDevice):
            places = args[1] if isinstance(args[1], tuple) else (args[1],)
            args = args[0], tuple(torch.tensor(each) if isinstance(each, list) else each for each in places)
        if func is Tensor.tolist and isinstance(args[0], OnDevice):
            return args[0].cpu().tolist()
        return func(*args, **kwargs)


def _begin_without_gradients(mode: torch.inference_mode) -> None:
    mode.prev = torch.is_grad_enabled()
    torch.set_grad_enabled(mode.prev and not mode.mode)


def _end_without_gradients(mode: torch.inference_mode, *error: Any) -> None:
    torch.set_grad_enabled(mode.prev)


_active: list[Accelerator] = []
_libraries: list[torch.library.Library] = []
"""kept: their operators go with them"""


@cache
def device() -> torch.device:
    """The device. Ask for it before anything is differentiated: autograd makes its threads only once."""
    _setup_privateuseone_for_python_backend(NAME)
    getattr(torch, NAME).get_amp_supported_dtype = lambda: [torch.bfloat16, torch.float16]
    _autocast()
    return torch.device(NAME, 0)


def _autocast() -> None:
    """Products in the type that autocast is asked for, all else as it is given."""
    _libraries.append(torch.library.Library("_", "IMPL"))
    _libraries[-1].fallback(torch.library.fallthrough_kernel, AUTOCAST)
    _libraries.append(torch.library.Library("aten", "IMPL"))
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, AUTOCAST))

    def narrowed(operator: Any) -> Any:
        def run(*args: Any) -> Any:
            dtype = torch.get_autocast_dtype(NAME)
            with torch._C._ExcludeDispatchKeyGuard(keys):
                return operator(*(each.to(dtype) if _is_float(each) else each for each in args))

        return run

    for name in PRODUCTS:
        _libraries[-1].impl(name, narrowed(getattr(aten, name).default), AUTOCAST)


def _is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _run(func: Any, args: Any, kwargs: Any) -> Any:
    given: list[Tensor] = []
    plain_args, plain_kwargs = _unwrapped((args, kwargs), given)
    here = any(isinstance(each, OnDevice) for each in given)
    target = kwargs.get("device")
    wanted = here if target is None else torch.device(target).type == NAME
    if not here and not wanted:
        return func(*args, **kwargs)
    _check(func, given, kwargs, here, wanted)
    if target is not None and wanted:
        plain_kwargs["device"] = CPU
    _count(func, args, kwargs, here, wanted)
    out = func(*plain_args, **plain_kwargs)
    if not wanted or (func is COPY and not isinstance(args[0], OnDevice)):
        return _wrapped(out, {id(each): each for each in given if not isinstance(each, OnDevice)}, False)
    made = _wrapped(out, {id(each.inner): each for each in given if isinstance(each, OnDevice)}, True)
    if _active and not _active[-1].doubles and isinstance(made, Tensor) and made.dtype == torch.float64:
        raise NoDoubles(f"{func} makes a tensor in double precision")
    return made


def _check(func: Any, given: list[Tensor], kwargs: Any, here: bool, wanted: bool) -> None:
    if here and func not in BETWEEN and func not in INDEXING:
        elsewhere = [each for each in given if not isinstance(each, OnDevice) and each.dim() > 0]
        if elsewhere:
            raise MixedDevices(f"{func}: a tensor of shape {tuple(elsewhere[0].shape)} is on the CPU")
    generator = kwargs.get("generator")
    if generator is not None and generator.device.type == "cpu" and (here or wanted):
        raise MixedDevices(f"{func}: a generator of the CPU cannot fill a tensor of the device")


def _count(func: Any, args: Any, kwargs: Any, here: bool, stays: bool) -> None:
    """`here`: a tensor of the device is given; `stays`: what is made is there."""
    kind = None
    if func in BETWEEN:
        kind = _copied(func, args, kwargs, here, stays)
    elif func in INDEXING:
        indices = [each for each in args[1] if each is not None]
        if any(each.dtype in (torch.bool, torch.uint8) for each in indices):
            kind = "mask"
        elif not all(isinstance(each, OnDevice) for each in indices):
            kind = "to device"
    elif here and kwargs.get("output_size") is None:
        kind = WAITS.get(func)
    if kind is not None and _active:
        _active[-1].waits[kind] += 1


def _copied(func: Any, args: Any, kwargs: Any, here: bool, stays: bool) -> str | None:
    """A copy from the host waits unless it is asked not to; one to the host always does, to be of use."""
    source, target = here, stays
    if func is COPY:
        target, source = (isinstance(each, OnDevice) for each in args[:2])
    if source == target:
        return None
    if source:
        return "to cpu"
    quick = args[2] if len(args) > 2 else kwargs.get("non_blocking", False)
    return None if quick else "to device"


def _unwrapped(tree: Any, found: list[Tensor]) -> Any:
    """A tree of arguments with tensors of the CPU; its tensors as they were are added to those found."""
    if isinstance(tree, Tensor):
        found.append(tree)
        return tree.inner if isinstance(tree, OnDevice) else tree
    if isinstance(tree, dict):
        return {key: _unwrapped(value, found) for key, value in tree.items()}
    if type(tree) in (tuple, list):
        return type(tree)(_unwrapped(value, found) for value in tree)
    return tree


def _wrapped(tree: Any, known: dict[int, Tensor], here: bool) -> Any:
    """A tree of results: what was given stays the same object, what is new is on the device, or not."""
    if isinstance(tree, Tensor):
        if id(tree) in known:
            return known[id(tree)]
        return OnDevice(tree) if here else tree
    if isinstance(tree, tuple | list):
        return type(tree)(_wrapped(value, known, here) for value in tree)
    return tree
