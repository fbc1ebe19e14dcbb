"""Every key of a recipe with its value, meaning, range and default, read from the config dataclasses.

The meaning of a key is the string under its field; Python does not keep it, so the source is read.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import types
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from segue.core.config import RunConfig

BOUNDS = {"gt": "above {}", "ge": "at least {}", "lt": "below {}", "le": "at most {}"}
NAMES = {bool: "true or false", int: "integer", float: "number", str: "text", type(None): "null", Any: "any"}


@dataclass(frozen=True)
class Key:
    """One key of a resolved recipe."""

    name: str
    """dotted, as it is written in KEY=VALUE"""
    value: Any
    meaning: str
    range: str
    """type and bounds, in words"""
    default: Any
    """None also where a key has no default"""
    required: bool


def explain(config: RunConfig) -> list[Key]:
    """The keys of a complete recipe, in its order."""
    return list(_keys(config, ""))


def _keys(section: Any, where: str) -> Iterator[Key]:
    hints, meanings = get_type_hints(type(section), include_extras=True), field_docs(type(section))
    for field in dataclasses.fields(section):
        name = f"{where}.{field.name}" if where else field.name
        value, hint = getattr(section, field.name), hints[field.name]
        if dataclasses.is_dataclass(value):
            yield from _keys(value, name)
            continue
        make = field.default_factory
        default = field.default if make is dataclasses.MISSING else make()
        required = default is dataclasses.MISSING
        meaning = meanings.get(field.name, "")
        yield Key(name, value, meaning, range_text(hint), None if required else default, required)


def field_docs(kind: type) -> dict[str, str]:
    """The strings that stand under the fields of a dataclass, on one line each."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__[:-1]):
        path = inspect.getsourcefile(each)
        if path is not None:
            found |= _documented(Path(path)).get(each.__qualname__, {})
    return found


@cache
def _documented(path: Path) -> dict[str, dict[str, str]]:
    """Field docs of all classes of a file."""
    tree = ast.parse(path.read_bytes())  # bytes: Python looks for the encoding itself
    return {name: _docs(node) for name, node in _classes(tree, "")}


def _classes(tree: ast.AST, where: str) -> Iterator[tuple[str, ast.ClassDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield f"{where}{node.name}", node
            yield from _classes(node, f"{where}{node.name}.")


def _docs(node: ast.ClassDef) -> dict[str, str]:
    found = {}
    for field, after in zip(node.body, node.body[1:], strict=False):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            found[field.target.id] = " ".join(str(after.value.value).split())
    return found


def range_text(hint: Any) -> str:
    """The values that a type takes, in words: "number above 0", "fp32, bf16 or fp16"."""
    origin, members = get_origin(hint), get_args(hint)
    if origin is Annotated:
        bounds = " and ".join(_bounds(members[1:]))
        return f"{range_text(members[0])} {bounds}".rstrip()
    if origin is Literal:
        return _either([str(member) for member in members])
    if origin in (Union, types.UnionType):
        return ", or ".join(range_text(member) for member in members)
    if origin is tuple and members[-1:] != (Ellipsis,):
        return f"[{', '.join(range_text(member) for member in members)}]"
    if origin in (list, tuple):
        return f"list of: {range_text(members[0])}"
    if origin is dict:
        return "section"
    return NAMES.get(hint, getattr(hint, "__name__", str(hint)))


def _bounds(notes: tuple[Any, ...]) -> Iterator[str]:
    """In words, from pydantic's notes on a type."""
    for note in notes:
        for bound in getattr(note, "metadata", []):
            for name, words in BOUNDS.items():
                if hasattr(bound, name):
                    yield words.format(getattr(bound, name))


def _either(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
