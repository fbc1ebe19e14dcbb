"""JSON files as one schema has them: what a file holds is a dataclass, or a sentence says where it is not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from segue.core.errors import UserError, brief, reason
from segue.core.ordinary import read_ordinary

STRICT = ConfigDict(extra="forbid")
MOST_BYTES = 2**28
T = TypeVar("T")


def read_object(path: Path) -> dict[str, Any] | None:
    """A JSON object of another library, of whatever keys; None: there is no such file."""
    if not path.is_file():
        return None
    try:
        document = json.loads(read_ordinary(path))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read as JSON: {reason(error)}.") from error
    if not isinstance(document, dict):
        raise UserError(f"{path} should hold a JSON object.")
    return document


def read_checked(kind: type[T], path: str | Path, what: str) -> T:
    """The content of a file as a dataclass of this kind, every type exactly as it says; `what` names it.

    A field `format` of the kind tells other versions from other mistakes.
    """
    try:
        content = read_ordinary(path, MOST_BYTES)
    except OSError as error:
        raise UserError(f"Cannot read the {what} {path}: {reason(error)}.") from error
    return checked(kind, content, path, what)


def checked(kind: type[T], content: bytes, path: str | Path, what: str) -> T:
    """The same of a content that was read already; `path` is where it stands."""
    try:
        return cast("T", _adapter(cast("Any", kind)).validate_json(content, strict=True))
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False)
        other = [problem for problem in problems if problem["loc"] == ("format",)]
        raise UserError(_sentence(kind, path, what, (other or problems)[0])) from error


@cache
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    kind.__pydantic_config__ = STRICT
    return TypeAdapter(kind)


def _sentence(kind: type, path: str | Path, what: str, problem: Mapping[str, Any]) -> str:
    place = ".".join(map(str, problem["loc"]))
    if place == "format":
        wanted = get_type_hints(kind)["format"].__args__[0]
        return f"{path} is not a {what} of this version ({wanted})."
    if problem["type"] == "missing":
        return f"{path} is not a {what}: '{place}' is missing."
    message = problem["msg"][0].lower() + problem["msg"][1:]
    if not place:
        return f"{path} is not a {what}: {message}."
    if problem["type"] == "value_error":  # what the kind says of itself
        return f"{path}: {message.removeprefix('value error, ')}."
    return f"{path} is not a {what}: '{place}' is {brief(problem['input'])}: {message}."
