"""Pictures that a model's card shows: read once at the start, and from inside the model folder alone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from segue.core.errors import UserError
from segue.core.ordinary import read_ordinary
from segue.data.image_files import opened

CARD = "README.md"
PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
TYPES = {"PNG": "image/png", "JPEG": "image/jpeg", "WEBP": "image/webp"}
MOST_PICTURES = 24
MOST_BYTES = 4 * 2**20


@dataclass(frozen=True)
class Picture:
    """A picture of a model's card."""

    title: str
    kind: str
    """media type"""
    content: bytes


def card_pictures(folder: Path) -> list[Picture]:
    """The pictures that the card of a model folder shows; links out of the folder are passed over."""
    try:
        card = read_ordinary(folder / CARD, MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return []
    found = (_picture(folder, title, link) for title, link in PICTURE.findall(card)[:MOST_PICTURES])
    return [picture for picture in found if picture is not None]


def _picture(folder: Path, title: str, link: str) -> Picture | None:
    try:
        path = (folder / link).resolve()
        if not path.is_relative_to(folder.resolve()):
            return None
        content = read_ordinary(path, MOST_BYTES)
        with opened(path, content) as image:
            kind = TYPES.get(str(image.format))
    except (OSError, ValueError, UserError):  # another's card may name anything
        return None
    return Picture(title, kind, content) if kind else None
