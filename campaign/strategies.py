"""What strangers may send: values of any kind, words, recipes, splits, and documents with something wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from segue.core import plugins

KEYS = (
    *("train.epochs", "train.batch_size", "train.crop", "train.scale", "train.seed", "train.workers"),
    *("train.precision", "train.views", "train.norm", "optim.lr_first", "optim.clip", "optim.momentum"),
    *("scenario.split", "scenario.order", "scenario.mode", "scenario.hold_out", "scenario.learned"),
    *("data.size", "data.train", "data.classes", "data.seed", "data.root", "model.backbone", "model.stages"),
    *("model.weights", "model.network", "method.name", "method.params", "method.params.kd_weight"),
    *("method.fuse", "eval.every", "eval.thin", "preset", "nothing", "train", "train.epochs.more"),
)
NUMBERS = st.one_of(
    st.integers(-3, 40),
    st.sampled_from([2**31, 2**53, 2**63, 2**64, 10**27, -(2**63), 10**300]),
    st.floats(allow_nan=True, allow_infinity=True),
)
TEXT = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        (
            *("", "~", "~nosuchuser/x", "/dev/zero", "../..", "a\0b", "\udce9", "<b>", "null", "1e400", "-0"),
            *("2020-13-45", "!!python/object:os.system", "&a [*a]", "{{}}", "1_0", "=", "#", "a: b: c", "0x"),
            *(
                "!!bool maybe",
                '!!int ""',
                "!!timestamp x",
                "!!set [a]",
                "1" + ":00" * 200 + ".5",
                "0x" + "f" * 5000,
            ),
        )
    ),
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=8,
)
WORDS = st.builds(
    lambda key, value: f"{key}={value}",
    st.one_of(st.sampled_from(KEYS), st.text(max_size=12)),
    st.one_of(VALUES.map(str), TEXT, st.text(alphabet="[]{}&*!|>#-?:,'\"% \n\tab10", max_size=30)),
)
SPLITS = st.one_of(
    st.text(alphabet="0123456789-/ab ,", max_size=14),
    st.builds(lambda a, b: f"{a}-{b}", st.integers(-1, 25), st.integers(-1, 25)),
    st.lists(st.lists(st.one_of(st.integers(-2, 14), TEXT), max_size=5), max_size=5),
    VALUES,
)
METHODS = st.one_of(st.sampled_from([*plugins.names("method"), "nothing.py"]), TEXT)
RECIPES = st.fixed_dictionaries(
    {},
    optional={
        "scenario": st.one_of(
            VALUES,
            st.fixed_dictionaries({"dataset": st.just("scenes"), "split": SPLITS}, optional={"mode": TEXT}),
        ),
        "method": st.one_of(VALUES, st.fixed_dictionaries({"name": METHODS}, optional={"params": VALUES})),
        "train": st.one_of(VALUES, st.dictionaries(st.sampled_from(["epochs", "crop", "seed", "x"]), VALUES)),
        "data": VALUES,
        "model": VALUES,
        "methods": VALUES,
        "preset": VALUES,
    },
)
BYTES = st.one_of(
    st.binary(max_size=80), st.text(max_size=40).map(lambda text: text.encode("utf-8", "replace"))
)


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place of a document, of lists the first three entries."""
    yield path
    if isinstance(node, dict):
        for key, value in node.items():
            yield from places(value, (*path, key))
    elif isinstance(node, list):
        for index, value in enumerate(node[:3]):
            yield from places(value, (*path, index))


def changed(node: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A document with another value at a place."""
    if not path:
        return value
    copy = dict(node) if isinstance(node, dict) else list(node)
    copy[path[0]] = changed(copy[path[0]], path[1:], value)
    return copy


def documents(original: Any) -> st.SearchStrategy[Any]:
    """A document in which one or two places hold something else."""
    spots = st.sampled_from(list(places(original)))
    once = st.builds(lambda path, value: changed(original, path, value), spots, VALUES)
    return st.one_of(once, st.builds(_again, once, st.integers(0, 10**6), VALUES))


def _again(document: Any, number: int, value: Any) -> Any:
    spots = list(places(document))
    return changed(document, spots[number % len(spots)], value)


def damaged(content: bytes) -> st.SearchStrategy[bytes]:
    """A file with flipped bits, cut, prolonged or replaced."""
    flips = st.lists(
        st.tuples(st.integers(0, max(len(content) - 1, 0)), st.integers(1, 255)), min_size=1, max_size=4
    )
    return st.one_of(
        flips.map(lambda spots: _flipped(content, spots)),
        st.integers(0, len(content)).map(lambda end: content[:end]),
        st.builds(lambda more: content + more, BYTES),
        BYTES,
    )


def _flipped(content: bytes, spots: list[tuple[int, int]]) -> bytes:
    flipped = bytearray(content)
    for place, mask in spots:
        flipped[place] ^= mask
    return bytes(flipped)
