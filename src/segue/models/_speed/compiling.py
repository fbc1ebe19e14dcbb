"""`torch.compile` for parts of a network; what cannot be compiled goes on as it is, with a warning."""

from __future__ import annotations

import warnings
from types import MethodType
from typing import Any

import torch
from torch import nn


def compile_part(part: nn.Module) -> None:
    """This part is compiled at its next call. Its weights keep their names, copies are plain."""
    part.forward = _Compiled(part)


class _Compiled:
    """The forward of one part."""

    def __init__(self, part: nn.Module) -> None:
        self.part = part
        self.plain = MethodType(type(part).forward, part)
        self.quick = torch.compile(self.plain)

    def __call__(self, *inputs: Any) -> Any:
        try:
            return self.quick(*inputs)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # whatever a compiler may raise; an error of the network comes up again
            if self.quick is self.plain:
                raise
            self.quick = self.plain
            lines = str(error).strip().splitlines() or [type(error).__name__]
            reason = " ".join(lines[:2] if lines[0].endswith("raised:") else lines[:1])
            warnings.warn(
                f"torch.compile failed for {type(self.part).__name__} ({reason}): going on without.",
                RuntimeWarning,
                stacklevel=2,
            )
            return self.plain(*inputs)

    def __deepcopy__(self, memo: dict[int, Any]) -> MethodType:
        return MethodType(type(self.part).forward, memo[id(self.part)])
