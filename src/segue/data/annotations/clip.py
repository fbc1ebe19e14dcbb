"""Polygons with corners far outside their image: cut to a frame around it, exactly inside the image."""

from __future__ import annotations

import numpy as np

FARTHEST = 1e9
"""corners beyond are moved here first, so that no product overflows"""


def clip(points: np.ndarray, width: int, height: int) -> np.ndarray:
    """The polygon, unchanged if it lies within one image size around the image, else cut to that frame.

    Cut edges run along the frame, outside the image, so what is filled inside the image stays the same.
    """
    margin = float(max(width, height))
    low, high = np.array([-margin, -margin]), np.array([width + margin, height + margin])
    if ((points >= low) & (points <= high)).all():
        return points
    points = np.clip(points, -FARTHEST, FARTHEST)
    for axis in (0, 1):
        points = _cut(points, axis, low[axis], keep_above=True)
        points = _cut(points, axis, high[axis], keep_above=False)
    return points


def _cut(points: np.ndarray, axis: int, limit: float, keep_above: bool) -> np.ndarray:
    """The part of a polygon on one side of a line: Sutherland and Hodgman's rule for all edges at once."""
    if len(points) == 0:
        return points
    ends = np.roll(points, -1, axis=0)
    sign = 1.0 if keep_above else -1.0
    here, there = sign * (points[:, axis] - limit) >= 0, sign * (ends[:, axis] - limit) >= 0
    crosses = here != there
    span = np.where(crosses, ends[:, axis] - points[:, axis], 1.0)
    share = (limit - points[:, axis]) / span
    cuts = points + np.clip(share, 0.0, 1.0)[:, None] * (ends - points)
    cuts[:, axis] = limit
    # Of each edge first its start, if kept, then where it crosses the line.
    both = np.stack([points, cuts], axis=1).reshape(-1, 2)
    return both[np.stack([here, crosses], axis=1).reshape(-1)]


def reach(points: np.ndarray) -> int:
    """Pixels that a pen passes along a closed polygon."""
    if len(points) == 0:
        return 0
    return int(np.abs(points - np.roll(points, -1, axis=0)).max(axis=1).sum()) + len(points)
