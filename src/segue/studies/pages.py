"""The page of a study: may it be written, and the command that makes it again."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from segue.core.errors import UserError
from segue.core.progress import Display
from segue.core.records import write_text
from segue.engine.recipe import find_recipe


def command_line(
    verb: str,
    arguments: Sequence[str],
    options: Mapping[str, object],
    words: Sequence[str],
    recipe: Path | None = None,
) -> str:
    """The command that asks for this, for a page: as it is typed, but without places on this machine.

    An option with a list is said once for each, a shipped recipe by its name alone.
    """
    said = [
        word
        for name, value in options.items()
        for each in (value if isinstance(value, list | tuple) else [value])
        if each
        for word in (f"--{name}", without_place(str(each)))
    ]
    if recipe is not None:
        shipped = find_recipe(recipe.name) == recipe
        arguments = [*arguments, recipe.name if shipped else without_place(str(recipe))]
    return shlex.join(["segue", verb, *arguments, *said, *map(_word_without_place, words)])


def without_place(value: Any) -> Any:
    """Of a path on this machine the last name alone, also inside lists and sections."""
    if isinstance(value, Mapping):
        return {key: without_place(each) for key, each in value.items()}
    if isinstance(value, list):
        return [without_place(each) for each in value]
    is_place = isinstance(value, str) and Path(value).is_absolute()
    return f"FOLDER/{Path(value).name}" if is_place else value


def _word_without_place(word: str) -> str:
    key, _, text = word.partition("=")
    value = yaml.safe_load(text)
    plain = without_place(value)
    if plain == value:
        return word
    if not isinstance(plain, str):
        plain = yaml.safe_dump(plain, default_flow_style=True, sort_keys=False, width=math.inf).strip()
    return f"{key}={plain}"


def check_page(page: Path | None) -> None:
    """Said before hours of training, not after."""
    if page is not None and page.exists() and not page.is_file():
        raise UserError(f"{page} is a folder: name the file to write, such as {page / 'page.md'}.")
    for place in (page.parent, page.parent / "figures") if page is not None else ():
        there = next(each for each in (place, *place.parents) if each.exists())
        if not there.is_dir() or not os.access(there, os.W_OK):
            raise UserError(f"{page} cannot be written: {there} is no folder that you may write to.")


def write_page(page: Path, text: str, display: Display) -> None:
    write_text(page, text)
    display.say(f"Page: {page}")
