"""A network in words: what `Segmenter.spec` writes and `Segmenter.from_spec` builds again.

A spec may come from a stranger: it is checked against these classes, names parts by the tables `FUSIONS` and
`CLASSIFIERS`, and can neither run code nor name a file or an address.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from segue.core.config import Count, ModelConfig
from segue.core.errors import UserError


@dataclass(frozen=True)
class ClassifierSpec:
    """The classifier: its name in the table `CLASSIFIERS`, and how it has grown."""

    kind: str
    sizes: list[Count]
    """channels of each step, background in the first"""
    width: Annotated[int, Field(ge=1, le=2**16)] | None = None
    """number of random features, if the classifier has such"""


@dataclass(frozen=True)
class FusionSpec:
    """The fusion layer: its name in the table `FUSIONS`, and its own words for its settings."""

    kind: str
    config: dict[str, Any]


@dataclass(frozen=True)
class NetworkSpec:
    """The whole network, without weights and without a place to fetch them from."""

    model: ModelConfig
    fusion: dict[str, Any] | None
    """a `FusionSpec`, if there is a fusion layer"""
    classifier: ClassifierSpec


def name_of(part: object, table: Mapping[str, type]) -> str | None:
    """The name under which a table lists the class of a part."""
    return next((name for name, kind in table.items() if type(part) is kind), None)


def unnamed(part: object, what: str, table: str, also: str = "") -> UserError:
    """A part of one's own that no table lists: what to add, so that it can be described."""
    name = type(part).__name__
    return UserError(
        f"A model file holds no code, and the {what} {name} has no name that the file could give instead."
        f" Where {name} is defined, add: from segue.models.{what} import {table};"
        f" {table}[{name.lower()!r}] = {name}.{also}"
    )
