"""The images on which a grown model differs most from the one that it grew from, as small pictures."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image

from segue.core.classes import Colour
from segue.deploy.card_pictures import MOST_PICTURES, CardPicture, card_picture
from segue.deploy.difference import difference, thinned
from segue.deploy.legend import before_and_after
from segue.deploy.prediction import Prediction
from segue.report.verdict import Change, Gallery, LegendEntry

MOST_IMAGES = 10
MAX_SIDE = 320
"""longest side of a picture that is kept, in pixels: memory stays small whatever the images' size"""
CARD_SIDE = 256
"""longest side of each panel of a picture for the card, in pixels"""


class _Seen(NamedTuple):
    share: float
    order: int
    """negative place of the image: of two equal ones the first stays"""
    key: str
    what: str
    image: np.ndarray
    before: np.ndarray
    after: np.ndarray
    differs: np.ndarray


class MostChanged:
    """Keeps the few images with the largest share of changed pixels."""

    def __init__(self, classes: Sequence[str], colours: Sequence[Colour]) -> None:
        self._classes, self._palette = tuple(classes), tuple(colours)
        self._colours = np.array(colours, dtype=np.uint8)
        self._kept: list[_Seen] = []
        self._count = 0

    def see(
        self, key: str, image: np.ndarray, before: np.ndarray, after: np.ndarray, counted: np.ndarray
    ) -> None:
        """Look at an image and both answers; pixels that do not count, such as new objects, may change."""
        differs = counted & (before != after)
        share = 100 * float(differs.sum()) / max(1, int(counted.sum()))
        self._count += 1
        if len(self._kept) == MOST_IMAGES and (share, -self._count) < self._kept[0][:2]:
            return
        what = self._most(before[differs], after[differs])
        places = _places(image.shape[:2], MAX_SIDE)
        small = (each[places] for each in (image, before, after, differs))
        seen = _Seen(share, -self._count, key, what, *small)
        if len(self._kept) == MOST_IMAGES:
            heapq.heapreplace(self._kept, seen)
        else:
            heapq.heappush(self._kept, seen)

    def changes(self) -> list[Change]:
        """What was kept, the largest change first."""
        return [
            Change(
                seen.key,
                seen.share,
                seen.what,
                Image.fromarray(seen.image),
                Image.fromarray(self._colours[seen.before]),
                Image.fromarray(self._colours[seen.after]),
                difference(seen.image, seen.after, seen.differs, self._colours),
            )
            for seen in sorted(self._kept, reverse=True)
        ]

    def card_pictures(self, most: int = MOST_PICTURES) -> list[CardPicture]:
        """The first of what was kept as pictures for the model's card. They name no file of the user's."""
        found = []
        for seen in sorted(self._kept, reverse=True)[:most]:
            places = _places(seen.image.shape[:2], CARD_SIDE, enlarge=True)
            image, before, after = (each[places] for each in (seen.image, seen.before, seen.after))
            answers = [Prediction(ids, self._classes, self._palette, image) for ids in (before, after)]
            differs = before != after
            text = f"{100 * differs.mean():.0f} % of the pixels changed"
            if differs.any():
                text += f", most often {self._most(before[differs], after[differs])}"
            found.append(card_picture(text, before_and_after(*answers)))
        return found

    def gallery(self, title: str, note: str, known: int) -> Gallery:
        """What was kept as a part of the page; classes from channel `known` on are new."""
        return Gallery(title, note, self.changes(), self.legend(known))

    def legend(self, known: int) -> list[LegendEntry]:
        """Background and the classes in the pictures; those from channel `known` on are new."""
        shown = {0, *(int(one) for seen in self._kept for ids in seen[5:7] for one in np.unique(ids))}
        return [
            LegendEntry(self._classes[channel], tuple(self._colours[channel].tolist()), channel >= known)
            for channel in sorted(shown)
        ]

    def _most(self, before: np.ndarray, after: np.ndarray) -> str:
        """The most frequent change: from which class to which."""
        if not before.size:
            return ""
        count = len(self._classes)
        pair = int(np.bincount(before.astype(np.int64) * count + after, minlength=1).argmax())
        return f"{self._classes[pair // count]} → {self._classes[pair % count]}"


def _places(size: tuple[int, ...], longest: int, enlarge: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of an image that a picture of it keeps, some twice where a tiny one is enlarged."""
    factor = longest / max(size)
    factor = factor if enlarge else min(1.0, factor)
    rows, columns = (thinned(side, max(1, round(side * factor))) for side in size)
    return rows[:, None], columns[None, :]
