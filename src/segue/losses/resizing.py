"""How logits come to the size of the labels: a property of the network, for every loss of every method.

Segue's own networks mean bilinear resizing; one from elsewhere may have been trained with aligned corners,
and then shows its classes a few pixels off when it is resized otherwise. As with autocast it is said around
the losses, so that no method has to hand it on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

BILINEAR, ALIGNED, NEAREST = "bilinear", "aligned", "nearest"
_RESIZE: ContextVar[str] = ContextVar("resize", default=BILINEAR)


@contextmanager
def resized_as(resize: str) -> Iterator[None]:
    """Inside, logits are resized in this way: bilinear, aligned (bilinear, corners aligned) or nearest."""
    before = _RESIZE.set(resize)
    try:
        yield
    finally:
        _RESIZE.reset(before)


def present_resize() -> str:
    return _RESIZE.get()
