"""What a person adds to a comparison of methods, as a file: the papers' numbers, and remarks on methods."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import Field

from segue.core.config import validate
from segue.core.errors import UserError, suggest
from segue.core.records import read_yaml

Percent = Annotated[float, Field(ge=0, le=100)]


@dataclass(frozen=True)
class PaperNumbers:
    setting: str
    """data set, split and mode of these numbers"""
    rows: dict[str, tuple[Percent | None, Percent | None, Percent | None]]
    """old, new and all by method; null where the paper has none"""


@dataclass(frozen=True)
class Remarks:
    paper: PaperNumbers | None = None
    remarks: dict[str, str] = field(default_factory=dict)
    """sentences by method"""


def read_remarks(path: str | Path, methods: Collection[str]) -> Remarks:
    """Read and check the file; `methods` are the names that it may speak of."""
    document = read_yaml(path)
    try:
        if isinstance(document.get("paper"), Mapping):
            document["paper"] = validate(PaperNumbers, document["paper"], "paper")
        found = validate(Remarks, document, "")
        for name in [*(found.paper.rows if found.paper else ()), *found.remarks]:
            if name not in methods:
                raise UserError(f"There is no method '{name}'.{suggest(name, methods)}")
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    return found
