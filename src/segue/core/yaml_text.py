"""YAML as users and strangers write it: it runs no code, has no key twice, and does not grow when it is read.

A few hundred bytes of aliases (`&a [*b, *b]`, one in the other) can stand for billions of values, which no
message could show. So values are counted as if every alias were written out.
"""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from segue.core.errors import UserError, reason
from segue.core.ordinary import read_ordinary

MOST_VALUES = 200_000
"""values of a document, aliases written out"""
MOST_BYTES = 2**24
BAD_YAML = (yaml.YAMLError, ValueError, RecursionError)
"""errors of text that is no YAML; ValueError: a date such as 2020-13-45, a number with 5,000 digits"""


class StrictLoader(yaml.SafeLoader):
    """YAML without code, in which a key may stand only once (PyYAML lets the last one win)."""

    def get_single_node(self) -> yaml.Node | None:
        node = super().get_single_node()
        if node is not None:
            _count(node, {})
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        merge, seen = "tag:yaml.org,2002:merge", set()
        for key in [self.construct_object(key, deep=True) for key, _ in node.value if key.tag != merge]:
            if isinstance(key, Hashable) and key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key '{key}' stands twice", node.start_mark
                )
            if isinstance(key, Hashable):  # what is not is refused below
                seen.add(key)
        return super().construct_mapping(node, deep)


def _count(node: yaml.Node, known: dict[int, int]) -> int:
    """Values below a node; `known` are those of nodes that were counted, 0 while one is being counted."""
    if id(node) in known:
        if not known[id(node)]:
            raise yaml.constructor.ConstructorError(
                None, None, "an alias stands inside itself", node.start_mark
            )
        return known[id(node)]
    known[id(node)], count = 0, 1
    for child in node.value if isinstance(node, yaml.CollectionNode) else ():
        for part in child if isinstance(child, tuple) else (child,):
            count += _count(part, known)
        if count > MOST_VALUES:
            raise yaml.constructor.ConstructorError(
                None, None, f"it stands for more than {MOST_VALUES:,} values", node.start_mark
            )
    known[id(node)] = count
    return count


def parse_yaml(text: str) -> Any:
    """The value of a text; one of `BAD_YAML` if it has none."""
    return yaml.load(text, Loader=StrictLoader)


def read_yaml(path: str | Path) -> dict[str, Any]:
    """A YAML file whose top level is a mapping."""
    try:
        document = parse_yaml(read_ordinary(path, MOST_BYTES).decode("utf-8"))
    except OSError as error:
        raise UserError(f"Cannot read {path}: {reason(error)}.") from error
    except BAD_YAML as error:
        raise UserError(f"{path} is not valid YAML: {' '.join(str(error).split())}.") from error
    if not isinstance(document, dict):
        raise UserError(
            f"{path} should hold 'section: {{key: value}}' entries, not {type(document).__name__}."
        )
    return document
