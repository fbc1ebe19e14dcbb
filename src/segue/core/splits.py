"""How a split is written: 15-5, the sizes of all steps (5-2-2, 100-10x5), or the classes of each step."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice, pairwise

from segue.core.classes import ClassTable
from segue.core.errors import UserError

Split = str | Sequence[Sequence[str | int]]
SIZES = re.compile(r"[0-9]{1,4}(x[0-9]{1,4})?(-[0-9]{1,4}(x[0-9]{1,4})?){0,999}")
"""numbers of classes, one per step; 10x5 stands for five times 10"""


def canonical_split(text: str) -> str:
    """The plain name of a split: other code says "50" for 50-50 and "15-5s" for 15-1, tables 15-1-1-1-1-1."""
    text = text.strip()
    if text.isdecimal():
        return f"{text}-{text}"
    base, *rest = listed_sizes(text) or (0,)
    if rest and len(set(rest[:-1])) <= 1 and 0 < rest[-1] <= rest[0]:
        return f"{base}-{rest[0]}"
    return re.sub(r"^(\d+)-\d+s$", r"\1-1", text)


def listed_sizes(text: str) -> tuple[int, ...] | None:
    """Numbers of classes where a split lists them for every step, as tables do: 5-2-2, 100-10x5."""
    if not SIZES.fullmatch(text) or not ("x" in text or text.count("-") > 1):
        return None
    parts = [part.partition("x") for part in text.split("-")]
    return tuple(int(size) for size, _, times in parts for _ in range(int(times or 1)))


def parse_split(classes: ClassTable, split: Split, ordered: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Class ids per step. "B-I" takes B classes first, then I at a time; a last step takes what is left.

    Three numbers and more are the sizes of all steps.
    """
    if not isinstance(split, str | int):
        if any(isinstance(group, str | int) for group in split):
            raise UserError("A split lists the classes of each step, such as [[cat, dog], [person]].")
        return tuple(tuple(classes.resolve(entry) for entry in group) for group in split)
    text = str(split).strip()
    if text == "offline":
        return (tuple(ordered),)
    sizes = listed_sizes(text)
    if sizes is not None:
        if sum(sizes) != len(ordered):
            has = f"{classes.dataset} has {len(ordered)}"
            raise UserError(f"Split '{text}' has {sum(sizes)} classes in {len(sizes)} steps, but {has}.")
        return _cut(ordered, sizes)
    text = canonical_split(text)
    match = re.fullmatch(r"(\d+)-(\d+)", text)
    if match:
        return _cut(ordered, _sizes(text, int(match[1]), int(match[2]), len(ordered), classes.dataset))
    if "/" not in text and "," not in text and text not in classes.names.values():
        raise UserError(
            f"Split '{text}' is not understood. Write B-I (15-5: 15 classes first, then 5 at a time),"
            " the number of classes of each step (5-2-2), or list the classes of each step: 'cat,dog/person'."
        )
    words = [[word for word in group.split(",") if word.strip()] for group in text.split("/")]
    return tuple(tuple(classes.resolve(word) for word in group) for group in words)


def _sizes(text: str, base: int, increment: int, total: int, dataset: str) -> list[int]:
    """Numbers of classes of a split B-I."""
    if not 1 <= base <= total:
        raise UserError(f"Split '{text}' starts with {base} classes, but {dataset} has {total}.")
    if base < total and not 1 <= increment <= total - base:
        raise UserError(
            f"Split '{text}' adds {increment} classes, but after {base} only {total - base} are left."
        )
    starts = [0, *range(base, total, max(increment, 1)), total]
    return [end - start for start, end in pairwise(starts)]


def _cut(ordered: Sequence[int], sizes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    rest = iter(ordered)
    return tuple(tuple(islice(rest, size)) for size in sizes)
