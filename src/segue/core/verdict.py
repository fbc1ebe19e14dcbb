"""What is known of a grown model: its old classes before and after, its new ones, and whether it is safe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Answer = Literal["safe to deploy", "look here first", "not safe"]


@dataclass(frozen=True)
class OldClass:
    """An old class before and after."""

    name: str
    before: float
    """IoU in points with a check folder; else 100, the old model being its own measure"""
    after: float
    """IoU in points with a check folder; else the share of its pixels that are still called so"""
    low: float
    high: float
    """ends of the 95 % interval of after - before"""
    images: int
    """images that show the class"""
    lost: float
    """share of its pixels, in percent, that a new class has taken"""


@dataclass(frozen=True)
class Verdict:
    """The answer and what it rests on."""

    answer: Answer
    evidence: str
    old: tuple[OldClass, ...]
    new: dict[str, float | None]
    """IoU of each new class on held-out new images, in points; None: no such image shows it"""
    change: float
    """mean of after - before over the old classes that the images show, in points"""
    labelled: bool
    """whether labelled images of old classes were there: scores are IoU, not agreement"""
    reasons: tuple[str, ...] = ()

    @property
    def safe(self) -> bool:
        return self.answer == "safe to deploy"
