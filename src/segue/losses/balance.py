"""Whether cross-entropies weigh classes by how seldom they are: a setting of the run, for every method.

As with autocast it is said around the losses, so that no method has to hand it on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

EXPONENT = 0.5
"""how far classes are balanced: whole balance lets a handful of pixels outweigh an image"""
_BALANCED: ContextVar[bool] = ContextVar("balanced", default=False)


@contextmanager
def balanced_classes(on: bool) -> Iterator[None]:
    """Inside, cross-entropies without class weights of their own balance the classes of their labels."""
    before = _BALANCED.set(on)
    try:
        yield
    finally:
        _BALANCED.reset(before)


def classes_are_balanced() -> bool:
    return _BALANCED.get()
