"""Pictures for people: an image under its classes with a legend, and two models' answers side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from segue.deploy.difference import difference, thinned
from segue.deploy.prediction import Prediction

PAPER, INK = (255, 255, 255), (30, 30, 30)
TEXT = (14, 96)
"""least and largest height of letters in pixels"""
MOST_PIXELS = 2**24
"""pixels of the largest picture: larger images are shown smaller"""


class Reduced:
    """An image and its classes as they come in from top to bottom, thinned out if they are many pixels."""

    def __init__(self, size: tuple[int, int]) -> None:
        factor = min(1.0, math.sqrt(MOST_PIXELS / (size[0] * size[1])))
        self._rows, self._columns = (thinned(side, max(1, int(side * factor))) for side in size)
        self._parts: list[list[np.ndarray]] = []

    def add(self, top: int, *arrays: np.ndarray) -> None:
        """Rows from `top` on of each array: pixels, ids, ids of another model."""
        first, last = np.searchsorted(self._rows, [top, top + len(arrays[0])])
        kept = self._rows[first:last] - top
        self._parts.append([array[kept][:, self._columns] for array in arrays])

    def arrays(self) -> list[np.ndarray]:
        return [np.concatenate(parts) for parts in zip(*self._parts, strict=True)]


def overlay(prediction: Prediction) -> Image.Image:
    """The image with its classes in their colours over it, and a legend of those that it shows below."""
    shown = [int(one) for one in np.unique(prediction.ids) if one > 0]
    return _with_legend([prediction.overlay()], [""], shown, prediction)


def side_by_side(before: Prediction, after: Prediction) -> Image.Image:
    """Old model, new model, and the new one's answer where it is another, over the image in dark grey.

    Ids of both mean the same classes.
    """
    changed = difference(after.image, after.ids, before.ids != after.ids, after.colours)
    panels = [before.overlay(), after.overlay(), changed]
    return _with_legend(panels, ["old", "new", "difference"], _shown(before, after), after)


def before_and_after(before: Prediction, after: Prediction) -> Image.Image:
    """The answers of the old and the new model, narrow enough for a phone. Ids of both mean the same."""
    panels = [before.overlay(), after.overlay()]
    painted = [one for one in _shown(before, after) if one > 0]
    return _with_legend(panels, ["before", "after"], painted, after)


def _shown(*predictions: Prediction) -> list[int]:
    return sorted({int(one) for prediction in predictions for one in np.unique(prediction.ids)})


def _with_legend(
    panels: Sequence[Image.Image], titles: Sequence[str], shown: Sequence[int], named: Prediction
) -> Image.Image:
    """Panels beside each other, titles above if there are any, swatches with names below."""
    wide, height = panels[0].size
    width = wide * len(panels)
    text = min(TEXT[1], max(TEXT[0], wide // 50))
    line, gap = text * 3 // 2, text // 4
    head = line if any(titles) else 0
    lines = _lines([named.classes[one] for one in shown], width, text)
    picture = Image.new("RGB", (width, head + height + line * len(lines)), PAPER)
    draw = ImageDraw.Draw(picture)
    for place, (panel, title) in enumerate(zip(panels, titles, strict=True)):
        picture.paste(panel, (place * wide, head))
        draw.text((place * wide + gap, gap), title, fill=INK, font=_font(text), anchor="la")
    swatches = iter(shown)
    for number, names in enumerate(lines):
        top = head + height + line * number + gap
        for left, name in names:
            box = (left, top, left + text, top + text)
            draw.rectangle(box, fill=named.colours[next(swatches)], outline=INK)
            draw.text((left + text + gap, top), name, fill=INK, font=_font(text), anchor="la")
    return picture


def _lines(names: Sequence[str], width: int, text: int) -> list[list[tuple[int, str]]]:
    """Names with the place where each begins, in lines that fit; one longer than a line is cut."""
    lines: list[list[tuple[int, str]]] = []
    first = left = text // 4
    for name in names:
        needed = 2 * text + math.ceil(_font(text).getlength(name))
        if not lines or (left + needed > width and left > first):
            lines.append([])
            left = first
        lines[-1].append((left, name))
        left += needed
    return lines


@cache
def _font(text: int) -> ImageFont.FreeTypeFont:
    """DejaVu Sans, which comes with matplotlib and has the letters of most languages."""
    import matplotlib

    return ImageFont.truetype(str(Path(matplotlib.get_data_path(), "fonts", "ttf", "DejaVuSans.ttf")), text)
