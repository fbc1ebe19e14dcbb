"""True and false are no numbers: pydantic takes them for 1 and 0."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, get_args, get_type_hints

from segue.core.errors import UserError
from segue.core.overrides import _dotted


def check_numbers(hint: Any, value: Any, path: str) -> None:
    """Refuse true and false where a number belongs, in sections and lists too; all else has been checked."""
    if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
        hints = get_type_hints(hint)
        for key, each in value.items():
            check_numbers(hints[key], each, _dotted(path, key))
    elif isinstance(value, (list, tuple)):
        for place, each in enumerate(value):
            check_numbers(hint, each, f"{path}.{place}")
    elif isinstance(value, bool) and bool not in (kinds := _parts(hint)) and kinds & {int, float}:
        raise UserError(f"'{path}' is {value!r}: a number belongs here.")


def _parts(hint: Any) -> set[Any]:
    """All types of which a type is made, itself included."""
    return {hint}.union(*map(_parts, get_args(hint)))
