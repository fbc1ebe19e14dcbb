"""Activation checkpointing: blocks keep their input alone and are run again on the way back.

Losses, gradients and running statistics are bit for bit those of plain training.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint


def checkpoint_blocks(blocks: Iterable[nn.Module]) -> None:
    """From now on these blocks are checkpointed. Their weights keep their names."""
    for block in blocks:
        block.forward = _Checkpointed(block)


def keep_all(model: nn.Module) -> None:
    """No block is checkpointed any more."""
    for module in model.modules():
        if isinstance(module.__dict__.get("forward"), _Checkpointed):
            del module.forward


class _Checkpointed:
    """The forward of one block; copied together with it."""

    def __init__(self, block: nn.Module) -> None:
        self.block = block

    def __call__(self, *inputs: Any) -> Any:
        plain = type(self.block).forward
        if not torch.is_grad_enabled():
            return plain(self.block, *inputs)
        return checkpoint(plain, self.block, *inputs, use_reentrant=False, context_fn=self._contexts)

    def _contexts(self) -> tuple[AbstractContextManager, AbstractContextManager]:
        return nullcontext(), self._without_statistics()

    @contextmanager
    def _without_statistics(self) -> Iterator[None]:
        """What norms gather the second time is dropped: the batch was counted already."""
        kept = [
            (norm, name, buffer)
            for norm in self.block.modules()
            if isinstance(norm, _BatchNorm) and norm.training
            for name, buffer in norm.named_buffers()
        ]
        for norm, name, buffer in kept:
            setattr(norm, name, buffer.clone())
        try:
            yield
        finally:
            for norm, name, buffer in kept:
                setattr(norm, name, buffer)
