"""Fusion layers that a model file can describe: by a name in this table, and by their own settings.

A layer of one's own becomes one of them when the file that defines it says `FUSIONS["mine"] = MyLayer`. A
model file holds the name alone, never code: whoever loads it needs the same line.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn

from segue.models.caf import CafLayer


@runtime_checkable
class FusionLayer(Protocol):
    """z and, in training, the teacher's z -> z_fused, with a description of its own."""

    def __call__(self, z_BChw: Tensor, old_z_BChw: Tensor | None = None) -> Tensor: ...

    def spec(self) -> dict[str, Any]:
        """Its settings in words that JSON knows."""
        ...

    @classmethod
    def from_spec(cls, channels: int, spec: dict[str, Any]) -> nn.Module:
        """The same layer again, with weights yet to be loaded. Nothing in `spec` is to be trusted."""
        ...


FUSIONS: dict[str, type[FusionLayer]] = {"caf": CafLayer}
