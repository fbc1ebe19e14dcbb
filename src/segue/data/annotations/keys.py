"""A key for each image: its file name without suffix, fit for any file system and for lists of words."""

from __future__ import annotations

import hashlib
import unicodedata
from collections import Counter
from collections.abc import Sequence

from segue.data.layout import IMAGE_SUFFIXES

MOST_BYTES = 150
_REPLACED = frozenset('/\\<>:"|?*\ufeff')
_REPLACED_KINDS = ("Cc", "Cs", "Zs", "Zl", "Zp")


def assign_keys(names: Sequence[str]) -> list[str]:
    """Keys of images given by their paths with /, distinct even where capitals do not count.

    Names that are equal take in their folders, as many as are needed; at last a hash of the path.
    """
    keys = [clean(_stem(name, 0)) for name in names]
    deepest = max((name.count("/") for name in names), default=0)
    for depth in range(1, deepest + 1):
        if not (equal := _equal(keys)):
            return keys
        for index in equal:
            keys[index] = clean(_stem(names[index], depth))
    while equal := _equal(keys):
        for index in equal:
            keys[index] = _with_hash(keys[index], f"{names[index]} {index} {keys[index]}")
    return keys


def _equal(keys: Sequence[str]) -> list[int]:
    folded = [unicodedata.normalize("NFC", key.casefold()) for key in keys]
    counts = Counter(folded)
    return [index for index, key in enumerate(folded) if counts[key] > 1]


def _stem(name: str, depth: int) -> str:
    """The last folders and the file name without suffix."""
    *folders, last = name.split("/")
    stem, dot, suffix = last.rpartition(".")
    kept = folders[-depth:] if depth else []
    return "/".join(
        [*kept, stem if dot and stem and f".{suffix.lower()}" in IMAGE_SUFFIXES | {".json"} else last]
    )


def clean(text: str) -> str:
    """A key: no white space, no separators, no control characters, no leading dot or dash."""
    text = unicodedata.normalize("NFC", text)
    key = "".join(
        "_" if character in _REPLACED or unicodedata.category(character) in _REPLACED_KINDS else character
        for character in text
    )
    if key[:1] in ("", ".", "-"):
        key = f"_{key[1:]}"
    if ending := next((suffix for suffix in IMAGE_SUFFIXES if key.lower().endswith(suffix)), None):
        key = f"{key[: -len(ending)]}_{ending[1:]}"  # lists may name files: a key must not look like one
    return key if len(key.encode()) <= MOST_BYTES else _with_hash(key, text)


def _with_hash(key: str, text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    head = key.encode()[: MOST_BYTES - 9].decode("utf-8", "ignore")
    return f"{head}-{digest}"
