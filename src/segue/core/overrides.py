"""Recipes as nested mappings: merged, changed by `key=value` words, compared."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from segue.core.errors import UserError, brief, cut
from segue.core.yaml_text import BAD_YAML, parse_yaml

MOST_LEVELS = 20
"""levels of a dotted key"""
COMMENT = re.compile(r"(^|\s)#")


def _dotted(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def merge(base: Mapping[str, Any], over: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """`over` wins; nested mappings are merged key by key. A value in the place of a section is refused."""
    merged = dict(base)
    for key, value in over.items():
        before = merged.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            merged[key] = merge(before, value, _dotted(where, key))
            continue
        if isinstance(before, Mapping) and value is not None:
            raise UserError(f"'{_dotted(where, key)}' is a section: write '{key}: {{key: value}}'.")
        if isinstance(value, Mapping) and before is not None:
            raise UserError(f"'{_dotted(where, key)}' cannot be {brief(before)} and a section at once.")
        merged[key] = value
    return merged


def parse_overrides(words: Iterable[str]) -> dict[str, Any]:
    """Turn `optim.lr_next=0.001` words into nested mappings; values are read as YAML."""
    nested: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not all(key.split(".")):
            raise UserError(f"'{cut(word)}' is not understood: settings are written section.key=value.")
        if key.count(".") >= MOST_LEVELS:
            raise UserError(f"'{cut(word)}' has {key.count('.') + 1} levels: no setting has so many.")
        try:
            value = parse_yaml(text)
        except BAD_YAML as error:
            reason = getattr(error, "problem", None) or "it cannot be read"
            raise UserError(f"'{cut(word)}': the value is not valid YAML: {reason}.") from error
        if COMMENT.search(text) and "#" not in str(value):
            raise UserError(
                f"'{cut(word)}': YAML takes '#' for a comment. Quote the value: {key}='\"{cut(text)}\"'."
            )
        if key == "scenario.split":
            value = value if isinstance(value, list | str) else text
        nested = merge(nested, nest(key, value))
    return nested


def nest(key: str, value: Any) -> dict[str, Any]:
    """`a.b` and a value as {a: {b: value}}."""
    for part in reversed(key.split(".")):
        value = {part: value}
    return value


def differences(stored: Mapping[str, Any], wanted: Mapping[str, Any], where: str = "") -> list[str]:
    """Lines `key: stored -> wanted` for everything in which two recipes differ."""
    lines: list[str] = []
    for key in dict.fromkeys([*stored, *wanted]):
        path, a, b = _dotted(where, key), stored.get(key), wanted.get(key)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            lines += differences(a, b, path)
        elif json.dumps(a) != json.dumps(b):
            lines.append(f"{path}: {brief(a)} -> {brief(b)}")
    return lines
