"""A network in words: what `Segmenter.spec` writes and `Segmenter.from_spec` builds again.

A spec may come from a stranger: it is checked against these classes, names parts by the tables `FUSIONS` and
`CLASSIFIERS`, and can neither run code nor name a file or an address.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from segue.core.config import Count, ModelConfig
from segue.core.errors import UserError


@dataclass(frozen=True)
class ClassifierSpec:
    """The classifier: its name in the table `CLASSIFIERS`, and how it has grown."""

    kind: str
    sizes: list[Count]
    """channels of each step, background in the first"""


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
    ours = type(part)
    for name, kind in table.items():
        # by name: a method file that is imported again defines its classes anew
        if (kind.__module__, kind.__qualname__) == (ours.__module__, ours.__qualname__):
            return name
    return None


def refuse(part: object, table: str) -> UserError:
    """Why a part of one's own cannot be described, and what to add."""
    kind = type(part).__name__
    needs = "spec() and from_spec(channels, spec), " if table == "FUSIONS" else ""
    module = "fusion" if table == "FUSIONS" else "classifier"
    return UserError(
        f"{kind} is a {module} of one's own, and a model file names such parts instead of holding their code."
        f" Give it {needs}a name in the file that defines it"
        f" (from segue.models.{module} import {table}; {table}[{kind.lower()!r}] = {kind}),"
        " or let the method's deployed() return a model without it."
    )
