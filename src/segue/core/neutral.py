"""Settings that do not make a run another experiment, in one list for resumes, studies and tables."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from typing import Any, get_type_hints

from segue.core.config import RunConfig

NO_NUMBERS = frozenset(
    {
        *("train.workers", "train.save_seconds", "train.checkpointing", "train.cache_gb"),
        *("train.cache_disk_gb", "train.patience", "train.track", "eval.samples", "eval.every"),
    }
)
"""settings that alter no number"""
PLACES = frozenset({"data.root", "scenario.keep", "scenario.teacher"})
"""places of what a run reads: what lies there is compared by its content"""
MAY_CHANGE = NO_NUMBERS | PLACES
"""settings that a resumed run may have others of"""
IN_A_ROW = NO_NUMBERS | {"train.seed", "train.log_every"}
"""settings in which the runs of one row of a table may differ"""


def drop(recipe: dict[str, Any], keys: Iterable[str]) -> None:
    """Take dotted keys out of a recipe of nested mappings, where it has them."""
    for key in keys:
        section, name = key.split(".")
        (recipe.get(section) or {}).pop(name, None)


def with_defaults(recipe: dict[str, Any]) -> dict[str, Any]:
    """A stored recipe with the defaults of settings that are newer than it."""
    kinds = {each.name: get_type_hints(RunConfig)[each.name] for each in dataclasses.fields(RunConfig)}
    for name, kind in kinds.items():
        if dataclasses.is_dataclass(kind) and isinstance(recipe.get(name), dict):
            known = [each for each in dataclasses.fields(kind) if each.default is not dataclasses.MISSING]
            recipe[name] = {each.name: _plain(each.default) for each in known} | recipe[name]
    return recipe


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value))
