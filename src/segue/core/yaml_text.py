"""YAML as users and strangers write it: it runs no code, has no key twice, and does not grow when it is read.

A few hundred bytes of aliases (`&a [*b, *b]`, one in the other) can stand for billions of values, which no
message could show. So values are counted as if every alias were written out. Tags (`!!bool maybe`) make
PyYAML read a value as another type: they are refused. Numbers and keys have a bound.
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
LONGEST_NUMBER = 300
"""characters of a number; 1:00:00:..., to the base 60, takes time with the square of its length"""
LARGEST_KEY = 2**53
"""whole numbers from 2**61 on can be chosen so that all have the same hash"""
NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
"""tags of numbers"""
BAD_YAML = (yaml.YAMLError, ValueError, OverflowError, RecursionError)
"""errors of text that is no YAML; ValueError: a date such as 2020-13-45; OverflowError: no such letter"""


class StrictLoader(yaml.SafeLoader):
    """YAML without code, in which a key may stand only once (PyYAML lets the last one win)."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._checked: set[yaml.Node] = set()

    def fetch_tag(self) -> None:
        raise yaml.scanner.ScannerError(
            None, None, "settings have no tags (!); text that begins with ! stands in quotes", self.get_mark()
        )

    def get_single_node(self) -> yaml.Node | None:
        node = super().get_single_node()
        if node is not None:
            _count(node, {})
        return node

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Called for every mapping, those merged by << too, whose keys nobody else looks at."""
        if node not in self._checked:  # once: afterwards it holds what it merges
            self._checked.add(node)
            self._check_keys(node)
        super().flatten_mapping(node)

    def _check_keys(self, node: yaml.MappingNode) -> None:
        seen: set[Hashable] = set()
        for part, _ in node.value:
            if part.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(part, deep=True)
            if not isinstance(key, Hashable):  # refused by PyYAML
                continue
            if isinstance(key, int) and abs(key) > LARGEST_KEY:
                problem = f"a key is a number beyond {LARGEST_KEY}"
                raise yaml.constructor.ConstructorError(None, None, problem, part.start_mark)
            if key in seen:
                problem = f"the key '{key}' stands twice"
                raise yaml.constructor.ConstructorError(None, None, problem, part.start_mark)
            seen.add(key)

    def construct_scalar(self, node: yaml.Node) -> Any:
        if node.tag in NUMBERS and len(node.value) > LONGEST_NUMBER:
            raise yaml.constructor.ConstructorError(
                None, None, f"a number has more than {LONGEST_NUMBER} characters", node.start_mark
            )
        return super().construct_scalar(node)


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
