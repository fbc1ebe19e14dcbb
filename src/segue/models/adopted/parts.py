"""The parts of an adopted network, by their names in it, in words that JSON knows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field

from segue.core.config import Count
from segue.models.network import Resize

Three = Annotated[list[float], Field(min_length=3, max_length=3)]


@dataclass(frozen=True)
class Parts:
    """Where the classifier, h and z are, and how the network's answer follows from its logits."""

    classifiers: list[str]
    """modules whose outputs, added up, are the logits"""
    resize: Resize
    """way from the logits to the size of the image"""
    before: str | None = None
    """module whose input is h (a dropout); None: the classifier itself"""
    after: str | None = None
    """module whose output is h, if it was named"""
    encoder: str | None = None
    """module that hands out z; None: z is not known"""
    place: str = ""
    """place of z in what the encoder hands out"""
    z_channels: int = 0
    """channels of z"""
    stages: int = 0
    """number of maps that the encoder hands out"""
    encoder_modules: list[str] = field(default_factory=list)
    """modules and parameters that z depends on"""
    unused: list[str] = field(default_factory=list)
    """modules and parameters that the logits do not depend on, such as auxiliary heads"""
    inner: Resize | None = None
    """way from the classifier to a larger answer that is still smaller than the image; None: none"""
    inner_factor: Count = 1
    """enlargement of that answer"""
    divisor: Count = 1
    """number of pixels that has to divide both sides of an image"""
    square: bool = False
    """whether only squares are taken"""
    least: Count = 1
    """shortest side of an image that is taken, in pixels; smaller ones are padded"""
    told: list[list[str]] = field(default_factory=list)
    """rows of a table that tells the parts in words"""

    def __str__(self) -> str:
        width = max((len(name) for name, _ in self.told), default=0)
        return "\n".join(f"{name:<{width}}  {text}" for name, text in self.told)


@dataclass(frozen=True)
class Normalisation:
    """Numbers that the network wants its images with: (x - mean) / std, where x is 0 to `white`."""

    mean: Three
    std: Three
    white: float = 1.0
    """value of white before mean and std: 1, or 255"""
    bgr: bool = False
    """blue first"""


@dataclass(frozen=True)
class Adoption:
    """All that is needed to build an adopted network again: `ModelConfig.network`."""

    source: dict[str, Any]
    """way to build the module: family and its own settings (models/adopted/sources.py)"""
    parts: Parts
    normalisation: Normalisation
    order: list[int] = field(default_factory=list)
    """channels of the network as it came, in the order that they have now; empty: the same"""
    binary: bool = False
    """whether it came with one channel, beside which background has the logit 0"""
    closed: bool = False
    """whether it came without a background: the channel in front of its own ones is never the answer"""
