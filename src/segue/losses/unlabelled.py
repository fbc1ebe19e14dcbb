"""What the label 0 means where a network knows no background: some old class, nobody says which.

As with autocast it is said around the losses, so that no method has to hand it on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_OLD: ContextVar[int] = ContextVar("unlabelled", default=0)


@contextmanager
def without_background(num_old: int) -> Iterator[None]:
    """Inside, label 0 stands for all `num_old` old channels, of which channel 0 is never the answer.

    1: there is no old class yet, and pixels of label 0 are ignored. 0: label 0 is background, as usual.
    """
    before = _OLD.set(num_old)
    try:
        yield
    finally:
        _OLD.reset(before)


def channels_of_unlabelled() -> int:
    """The number of old channels that label 0 stands for; 0: it is background."""
    return _OLD.get()
