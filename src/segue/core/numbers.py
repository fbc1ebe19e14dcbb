"""Numbers of a recipe are numbers: pydantic takes true and false for 1 and 0."""

from __future__ import annotations

from typing import Any, get_args

from segue.core.errors import UserError


def check_numbers(hint: Any, value: Any, path: str) -> None:
    """Refuse true and false where the type of a field asks for a number, in lists too."""
    if isinstance(value, (list, tuple)):
        for place, each in enumerate(value):
            check_numbers(hint, each, f"{path}.{place}")
    kinds = _parts(hint)
    if isinstance(value, bool) and bool not in kinds and kinds & {int, float}:
        raise UserError(f"'{path}' is {value!r}, where a number belongs.")


def _parts(hint: Any) -> set[Any]:
    """All types of which a type is made, itself included."""
    return {hint}.union(*map(_parts, get_args(hint)))
