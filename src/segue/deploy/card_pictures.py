"""Pictures beside a model's card: a few images before and after its last step, small, named by number.

A folder may come from a stranger: names are never read from it, and a picture is read only if it is the one
that the folder's digest covers.
"""

from __future__ import annotations

import hashlib
import io
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Annotated

from PIL import Image
from pydantic import Field

from segue.core.errors import UserError, reason
from segue.core.ordinary import read_ordinary
from segue.core.records import atomic_file
from segue.data.image_files import BadFile, opened

PICTURES = "pictures"
"""folder in a model folder"""
KIND = "image/jpeg"
MOST_PICTURES = 6
MOST_BYTES = 2**20
LONGEST_SIDE = 4096
LONGEST_TEXT = 300
QUALITY = 90


@dataclass(frozen=True)
class CardPicture:
    """A JPEG picture with its alternative text."""

    text: str
    content: bytes


@dataclass(frozen=True)
class Listed:
    """What config.json says of a picture."""

    text: Annotated[str, Field(max_length=LONGEST_TEXT)]
    digest: str


def place(number: int) -> str:
    """Where the picture of a number lies in a model folder; the first is 1."""
    return f"{PICTURES}/{number}.jpg"


def card_picture(text: str, image: Image.Image) -> CardPicture:
    file = io.BytesIO()
    image.convert("RGB").save(file, format="JPEG", quality=QUALITY, subsampling=0)
    return CardPicture(shorten(text, LONGEST_TEXT), file.getvalue())


def write_pictures(folder: Path, pictures: Sequence[CardPicture]) -> list[Listed]:
    """Put pictures in the place of those that a model folder has; returns what to list."""
    remove_pictures(folder)
    for number, one in enumerate(pictures, 1):
        with atomic_file(folder / place(number), folder) as file:
            file.write(one.content)
    return [Listed(one.text, _digest(one.content)) for one in pictures]


def remove_pictures(folder: Path) -> None:
    if (folder / PICTURES).is_dir():
        shutil.rmtree(folder / PICTURES)


def read_pictures(folder: Path, listed: Sequence[Listed]) -> list[CardPicture]:
    """The pictures that a model folder lists, unless one is missing, another one, or no small JPEG file."""
    if len(listed) > MOST_PICTURES:
        raise UserError(f"{folder} lists {len(listed)} pictures; there are {MOST_PICTURES} at most.")
    return [CardPicture(one.text, _read(folder / place(n), one.digest)) for n, one in enumerate(listed, 1)]


def _read(path: Path, digest: str) -> bytes:
    try:
        content = read_ordinary(path, MOST_BYTES)
    except OSError as error:
        raise UserError(f"Cannot read {path}: {reason(error)}.") from error
    if _digest(content) != digest:
        raise UserError(f"{path} is damaged or was edited: it does not match the digest of its folder.")
    with opened(path, content) as image:
        if image.format != "JPEG" or max(image.size) > LONGEST_SIDE:
            raise BadFile("unreadable", f"{path} is no JPEG picture of at most {LONGEST_SIDE} pixels a side.")
        image.load()
    return content


def _digest(content: bytes) -> str:
    return f"blake2b:{hashlib.blake2b(content, digest_size=32).hexdigest()}"
