"""The file of class names: one name a line, or `ID NAME`.

Without numbers a name's place, from 0, is the id; so there are no gaps between names. A line `background`
says which id means "none of the classes"; without one every labelled pixel has a class, and ids start at 0
with the first. Lines named `void`, `ignore` or `unlabelled` are ids that nobody scores; so is 255, unless it
is a class.
"""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

from segue.core.classes import IGNORE, ClassTable
from segue.core.errors import UserError, reason
from segue.core.ordinary import read_ordinary

BACKGROUND_NAMES = frozenset({"background", "_background_", "__background__"})
VOID_NAMES = frozenset({"void", "ignore", "ignored", "unlabelled", "unlabeled", "__ignore__", "_ignore_"})
MOST_BYTES = 100_000


def read_class_names(path: Path, dataset: str) -> ClassTable:
    """The classes that a file names."""
    names: dict[int, str] = {}
    backgrounds, void = [], []
    for class_id, name in _entries(path).items():
        if name.casefold() in BACKGROUND_NAMES:
            backgrounds.append(class_id)
        elif name.casefold() in VOID_NAMES:
            void.append(class_id)
        elif name in names.values():
            raise UserError(f"{path} names the class '{name}' twice.")
        else:
            names[class_id] = name
    if len(backgrounds) > 1:
        raise UserError(f"{path} names background twice.")
    if not names:
        raise UserError(f"{path} names no class: write one name a line, background first if masks have it.")
    if IGNORE not in names and IGNORE not in backgrounds and IGNORE not in void:
        void.append(IGNORE)
    try:
        return ClassTable(dataset, names, backgrounds[0] if backgrounds else None, tuple(void))
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def _entries(path: Path) -> dict[int, str]:
    """id -> name, as the file says it."""
    every = _lines(path)
    lines = [line for line in every if line and not line.startswith("#")]
    numbered = [re.fullmatch(r"(\d{1,9})\s*[\s:,;]\s*(\S.*)", line) for line in lines]
    if not any(numbered):
        if lines and every[every.index(lines[0]) :][: len(lines)] != lines:
            raise UserError(
                f"{path} has empty lines or comments between names: without numbers nobody can tell whether"
                " they count. Remove them, or write ID NAME on every line."
            )
        if len(lines) > 256:
            raise UserError(f"{path} has {len(lines)} names, but masks are 8 bit: at most 256.")
        return dict(enumerate(lines))
    entries: dict[int, str] = {}
    for line, match in zip(lines, numbered, strict=True):
        if match is None:
            raise UserError(f"{path}: '{line[:60]}' has no number, but other lines do: write ID NAME.")
        class_id = int(match[1])
        if class_id > 255:
            raise UserError(f"{path}: the id {class_id} is larger than 255, the largest in an 8-bit mask.")
        if class_id in entries:
            raise UserError(f"{path} gives the id {class_id} to '{entries[class_id]}' and to '{match[2]}'.")
        entries[class_id] = match[2]
    return entries


def _lines(path: Path) -> list[str]:
    try:
        text = read_ordinary(path, MOST_BYTES).decode("utf-8-sig")
    except FileNotFoundError as error:
        raise UserError(
            f"{path} is missing. Write the names of the classes into it, one a line; a line's number, from 0,"
            " is the id in the masks. If 0 is background, the first line is 'background'. (What an annotation"
            " tool has exported is converted first: segue data convert.)"
        ) from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {reason(error)}.") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not a text file in UTF-8.") from error
    if bad := next((c for c in text if unicodedata.category(c) == "Cc" and c not in "\r\n\t"), None):
        raise UserError(f"{path} holds the control character {bad!r}: it is no list of names.")
    return [unicodedata.normalize("NFC", line.strip()) for line in text.splitlines()]
