"""How a model came to be: what is needed to teach it more without its run and without its images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class StepImages:
    """How many images a step had."""

    train: int
    """training images"""
    test: int
    """test images"""
    shown: dict[str, int] = field(default_factory=dict)
    """number of training images that show each new class; empty: not known"""


@dataclass(frozen=True)
class History:
    """The steps of a model, the recipe of its run, and what its method keeps between steps."""

    steps: tuple[tuple[str, ...], ...]
    """names of the classes that each step brought, without background"""
    recipe: Mapping[str, Any] = field(repr=False)
    """resolved recipe of the run, as it is stored, without places on the machine where it ran"""
    kept: Mapping[str, Tensor] = field(default_factory=dict, repr=False)
    """state of the method beside the network: features, prototypes, importance; never images"""
    images: tuple[StepImages | None, ...] = ()
    """number of images of each step; None, or nothing at all: not known"""

    @property
    def method(self) -> str:
        return str(self.recipe["method"]["name"])

    def after(self, earlier: History | None) -> History:
        """The same, with what an earlier history of the model knows of its first steps."""
        known = earlier.images if earlier is not None else ()
        padded = (*known, *(None for _ in self.images[len(known) :]))
        images = tuple(own or old for own, old in zip(self.images, padded, strict=False))
        return replace(self, images=images)


PLACES = (
    *(("data", "root"), ("data", "skip"), ("model", "weights")),
    *(("scenario", "manifest"), ("scenario", "keep"), ("scenario", "teacher")),
)
"""recipe keys that name files of the machine where a run was trained"""


def without_places(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe for others: what it was trained with, not where that lay."""
    plain = {section: dict(values) for section, values in recipe.items()}
    for section, key in PLACES:
        if key in plain.get(section, {}):
            plain[section][key] = None
    source = (plain.get("model", {}).get("network") or {}).get("source", {})
    if "code" in source:
        told = {**source, "code": Path(source["code"]).name}
        plain["model"]["network"] = {**plain["model"]["network"], "source": told}
    return plain
