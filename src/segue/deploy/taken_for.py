"""What a new class was taken for until now: regions of the old model's answer that a drawn object touches.

A model that does not know birds may call them dogs. When it has learned birds, those dogs are gone, and that
is no loss. Where nobody has drawn dogs, such regions say nothing about how well dogs are kept.

Shapes: H x W pixels.
"""

from __future__ import annotations

import numpy as np

MOST_SIDE = 256
"""longest side of the maps that are searched: regions need no more"""


def taken_for_new(before_HW: np.ndarray, drawn_HW: np.ndarray, void_HW: np.ndarray) -> np.ndarray:
    """Regions of one class, other than background, that touch a drawn new object or the void around it."""
    step = -(-max(before_HW.shape) // MOST_SIDE)
    small = [each[::step, ::step] for each in (before_HW, drawn_HW, void_HW)]
    found = _touching(*small)
    return np.repeat(np.repeat(found, step, 0), step, 1)[: before_HW.shape[0], : before_HW.shape[1]]


def _touching(before_HW: np.ndarray, drawn_HW: np.ndarray, void_HW: np.ndarray) -> np.ndarray:
    rim_HW = _spread(drawn_HW, void_HW, np.zeros_like(before_HW))
    touched_HW = _neighbours(rim_HW, np.zeros_like(before_HW)) & (before_HW > 0)
    return _spread(touched_HW, before_HW > 0, before_HW)


def _spread(seed_HW: np.ndarray, allowed_HW: np.ndarray, alike_HW: np.ndarray) -> np.ndarray:
    """All allowed pixels that a path of alike neighbours joins to the seed, and the seed."""
    found_HW = seed_HW
    while True:
        more_HW = found_HW | (_neighbours(found_HW, alike_HW) & allowed_HW)
        if np.array_equal(more_HW, found_HW):
            return found_HW
        found_HW = more_HW


def _neighbours(mask_HW: np.ndarray, alike_HW: np.ndarray) -> np.ndarray:
    """The mask and every pixel beside one of its pixels that has the same value."""
    grown_HW = mask_HW.copy()
    down_HW, right_HW = alike_HW[1:] == alike_HW[:-1], alike_HW[:, 1:] == alike_HW[:, :-1]
    grown_HW[1:] |= mask_HW[:-1] & down_HW
    grown_HW[:-1] |= mask_HW[1:] & down_HW
    grown_HW[:, 1:] |= mask_HW[:, :-1] & right_HW
    grown_HW[:, :-1] |= mask_HW[:, 1:] & right_HW
    return grown_HW
