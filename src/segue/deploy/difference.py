"""Where two models answer otherwise: small pictures of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image

from segue.core.classes import Colour

DIMMED = 0.45
"""brightness of the grey image where two models agree"""


def thinned(side: int, count: int) -> np.ndarray:
    """Evenly spread places along a side that a smaller picture keeps: ids cannot be averaged."""
    return ((np.arange(count) + 0.5) * side / count).astype(np.int64)


def difference(
    image_HW3: np.ndarray,
    after_HW: np.ndarray,
    differs_HW: np.ndarray,
    colours: Sequence[Colour] | np.ndarray,
) -> Image.Image:
    """The new answer where it is another one, over the image in dark grey."""
    dark = Image.fromarray(image_HW3).convert("L").point(lambda value: round(value * DIMMED)).convert("RGB")
    answer = Image.fromarray(np.array(colours, dtype=np.uint8)[after_HW])
    return Image.composite(answer, dark, Image.fromarray(differs_HW.astype(np.uint8) * 255))
