"""What is nearly right: documents in which a few values are others of their kind. About half are accepted."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hypothesis import strategies as st

from campaign.strategies import changed
from segue.core import plugins
from segue.core.config import as_dict
from segue.engine.recipe import resolve

FLOATS = (0.0, 0.25, 0.5, 1.0, 1.5, 1e-9, -1.0)
WHOLE = (0, 1, 2, 3, 8, 16, 32, 64, -1)
Draw = Callable[[st.SearchStrategy[Any]], Any]


@functools.cache
def recipes() -> tuple[dict[str, Any], ...]:
    """A complete recipe of every method."""
    words = ["data.classes=3"]
    found = (resolve(name, "scenes", "2-1", overrides=words) for name in plugins.names("method"))
    return tuple(json.loads(json.dumps(as_dict(config))) for config in found)


@functools.cache
def _words() -> dict[str, tuple[str, ...]]:
    """Every key of a recipe that holds a word, and the words that some method has there."""
    found: dict[str, set[str]] = {}
    for recipe in recipes():
        for path, value in leaves(recipe):
            if isinstance(value, str):
                found.setdefault(str(path[-1]), set()).add(value)
    return {key: tuple(sorted(values)) for key, values in found.items()}


def leaves(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Places that hold no further section, of lists the first three entries and the list itself."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from leaves(value, (*path, key))
        return
    yield path, node
    if isinstance(node, list):
        for index, value in enumerate(node[:3]):
            yield from leaves(value, (*path, index))


def another(key: Any, value: Any) -> st.SearchStrategy[Any]:
    """Values of the same kind, most of them sensible."""
    if isinstance(value, bool):
        return st.booleans()
    if isinstance(value, int):
        return st.one_of(st.sampled_from(WHOLE), st.just(value + 1), st.integers(1, 1000))
    if isinstance(value, float):
        return st.one_of(st.sampled_from([value / 2, value * 2, *FLOATS]), st.floats(0.01, 2.0))
    if isinstance(value, str):
        known = _words().get(str(key), (value,))
        return st.sampled_from([*known, *known, value.upper(), value[:-1]])
    if isinstance(value, list):
        return st.sampled_from([value, value[::-1], value[:1], [*value, *value[-1:]]])
    return st.sampled_from([None, None, None, 1, 0.5, "x"])


@st.composite
def near(draw: Draw, originals: Sequence[Any]) -> Any:
    """One of some documents with none, one or two values changed, and perhaps a key less."""
    document = draw(st.sampled_from(originals))
    for _ in range(draw(st.integers(0, 2))):
        path, value = draw(st.sampled_from(list(leaves(document))))
        document = changed(document, path, draw(another(path[-1], value)))
    if draw(st.integers(0, 7)) == 7:
        section = draw(st.sampled_from([key for key, value in document.items() if isinstance(value, dict)]))
        gone = draw(st.sampled_from(sorted(document[section])))
        left = {key: value for key, value in document[section].items() if key != gone}
        document = {**document, section: left}
    return document


@st.composite
def near_words(draw: Draw, original: Any) -> list[str]:
    """One or two `KEY=VALUE` words whose keys are there."""
    spots = [(path, value) for path, value in leaves(original) if not any(isinstance(p, int) for p in path)]
    said = []
    for _ in range(draw(st.integers(1, 2))):
        path, value = draw(st.sampled_from(spots))
        said.append(f"{'.'.join(path)}={json.dumps(draw(another(path[-1], value)))}")
    return said
