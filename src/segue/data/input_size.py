"""How large an image may be when a network gets it whole."""

from __future__ import annotations

import math

MOST_PIXELS = 2**22
"""pixels of the largest input that a network gets: 2048 x 2048"""
LONGEST_SIDE = 2**14
"""length of its longer side: bringing an answer back to an image's size takes memory for both lengths"""


def within_bounds(height: int, width: int) -> tuple[int, int]:
    """The size at which a network sees a whole image: its own, unless it is huge or very thin."""
    factor = min(1.0, math.sqrt(MOST_PIXELS / (height * width)), LONGEST_SIDE / max(height, width))
    return max(1, int(factor * height)), max(1, int(factor * width))
