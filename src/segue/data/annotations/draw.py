"""Regions to a mask: 0 background, 1 to K the classes in order, 255 void; later regions lie on top."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw

from segue.core.errors import UserError
from segue.core.extras import needed
from segue.data.annotations.base import (
    BACKGROUND,
    Box,
    Disc,
    Drawing,
    Outline,
    Patch,
    Region,
    Rings,
    Runs,
    value_of,
)
from segue.data.annotations.clip import FARTHEST, clip, reach
from segue.data.annotations.rle import decode_counts, paint_runs
from segue.data.image_files import opened

MOST_WORK = 4_000_000
"""pixels along the border of one region; COCO's code stores five times as many, and checks no memory"""
MOST_ROWS = 1_000_000_000
"""corners times rows of one polygon, the time that filling it takes"""


class Drawn(NamedTuple):
    mask: np.ndarray
    empty: int
    """regions that cover no pixel"""
    hidden: int
    """regions that cover pixels, all of them under other regions"""


def draw(drawing: Drawing, classes: tuple[str, ...], size: tuple[int, int]) -> Drawn:
    """The mask of a drawing on an image of this width and height."""
    width, height = size
    regions = [_prepare(region, width, height, drawing) for region in drawing.regions]
    if drawing.largest_first:
        regions.sort(key=_area, reverse=True)
    # The number of the region at each pixel, from 1; in column order, for run lengths.
    canvas = np.zeros((width, height), dtype=np.min_scalar_type(len(regions))).T
    empty = sum(not _paint(canvas, region, number, drawing) for number, region in enumerate(regions, start=1))
    seen = np.count_nonzero(np.bincount(canvas.T.reshape(-1))[1:])
    values = [BACKGROUND, *(value_of(region.name, classes) for region in regions)]
    mask = np.array(values, dtype=np.uint8)[canvas]
    return Drawn(np.ascontiguousarray(mask), empty, len(regions) - empty - seen)


def _prepare(region: Region, width: int, height: int, drawing: Drawing) -> Region:
    """COCO's polygons as run lengths; everything else as it is."""
    geometry = region.geometry
    if isinstance(geometry, Rings):
        return Region(region.name, _fill_rings(geometry, width, height, drawing))
    if isinstance(geometry, Runs) and (geometry.width, geometry.height) != (width, height):
        raise UserError(
            f"{drawing.file}: a run-length mask of {drawing.name} is"
            f" {geometry.width} x {geometry.height} pixels, but the image is {width} x {height}."
        )
    return region


def _area(region: Region) -> int:
    assert isinstance(region.geometry, Runs), "only COCO leaves the order open"
    return region.geometry.area


def _fill_rings(rings: Rings, width: int, height: int, drawing: Drawing) -> Runs:
    polygons = [clip(points, width, height) for points in rings.polygons]
    polygons = [points for points in polygons if len(points) >= 3]
    if sum(map(reach, polygons)) > MOST_WORK:
        raise _too_detailed(drawing)
    if not polygons:
        return Runs(height, width, np.array([height * width], dtype=np.int64))
    coco = load_pycocotools()
    merged = coco.merge(coco.frPyObjects([points.ravel().tolist() for points in polygons], height, width))
    return Runs(height, width, decode_counts(merged["counts"], str(drawing.file)))


def load_pycocotools() -> Any:
    return needed("pycocotools.mask", "coco", "A COCO polygon")


def _paint(canvas: np.ndarray, region: Region, value: int, drawing: Drawing) -> bool:
    """Set a region's pixels; whether there are any."""
    geometry = region.geometry
    if isinstance(geometry, Runs):
        paint_runs(canvas, geometry, value)
        return geometry.area > 0
    if isinstance(geometry, Outline):
        return _paint_outline(canvas, geometry, value, drawing)
    if isinstance(geometry, Box):
        return _paint_box(canvas, geometry, value)
    if isinstance(geometry, Disc):
        return _paint_disc(canvas, geometry, value)
    assert isinstance(geometry, Patch)
    return _paint_patch(canvas, geometry, value, drawing)


def _window(canvas: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[slice, slice] | None:
    """Rows and columns of the canvas between two corners (x, y), both included."""
    height, width = canvas.shape
    left, top = np.clip(low, -1, [width, height]).astype(int).clip(0).tolist()
    right, bottom = np.clip(high, -1, [width - 1, height - 1]).astype(int).tolist()
    if (high < 0).any() or left > right or top > bottom:
        return None
    return slice(top, bottom + 1), slice(left, right + 1)


def _paint_outline(canvas: np.ndarray, outline: Outline, value: int, drawing: Drawing) -> bool:
    height, width = canvas.shape
    points = clip(outline.points, width, height)
    if len(points) * height > MOST_ROWS:
        raise _too_detailed(drawing)
    if len(points) < 3 or (window := _window(canvas, points.min(axis=0), points.max(axis=0))) is None:
        return False
    rows, columns = window
    # PIL cuts fractions off towards zero; moving by whole pixels leaves that as it is, because a window that
    # does not begin at 0 begins at the leftmost corner.
    moved = points - [columns.start, rows.start]
    image = Image.new("1", (columns.stop - columns.start, rows.stop - rows.start))
    ImageDraw.Draw(image).polygon(list(map(tuple, moved.tolist())), fill=1, outline=1)
    inside = np.asarray(image)
    canvas[window][inside] = value
    return bool(inside.any())


def _paint_box(canvas: np.ndarray, box: Box, value: int) -> bool:
    window = _window(canvas, np.array([box.left, box.top]), np.array([box.right, box.bottom]))
    if window is None:
        return False
    canvas[window] = value
    return True


def _paint_disc(canvas: np.ndarray, disc: Disc, value: int) -> bool:
    x, y = (float(np.clip(number, -FARTHEST, FARTHEST)) for number in (disc.x, disc.y))
    radius = min(disc.radius, 4 * FARTHEST)
    window = _window(canvas, np.array([x - radius, y - radius]), np.array([x + radius, y + radius]))
    if window is None:
        return False
    rows, columns = np.ogrid[window]
    inside = (rows - y) ** 2 + (columns - x) ** 2 <= radius**2
    canvas[window][inside] = value
    return bool(inside.any())


def _paint_patch(canvas: np.ndarray, patch: Patch, value: int, drawing: Drawing) -> bool:
    inside = _read_patch(patch, drawing)
    height, width = canvas.shape
    rows = slice(max(patch.top, 0), max(min(patch.top + patch.height, height), 0))
    columns = slice(max(patch.left, 0), max(min(patch.left + patch.width, width), 0))
    seen = inside[
        rows.start - patch.top : rows.stop - patch.top, columns.start - patch.left : columns.stop - patch.left
    ]
    if rows.start >= rows.stop or columns.start >= columns.stop or not seen.any():
        return False
    canvas[rows, columns][seen] = value
    return True


def _read_patch(patch: Patch, drawing: Drawing) -> np.ndarray:
    name = Path(f"{drawing.file}, the PNG of a mask shape,")  # for messages: the content is at hand
    with opened(name, patch.png) as image:
        size = image.size
        if size == (patch.width, patch.height):
            return np.asarray(image.convert("L")) > 0
    raise UserError(
        f"{name} is {size[0]} x {size[1]} pixels, but its points span {patch.width} x {patch.height}."
    )


def _too_detailed(drawing: Drawing) -> UserError:
    return UserError(
        f"{drawing.file}: a polygon on {drawing.name} has so many or so long edges that filling it would take"
        " very long. Simplify it, or leave it out."
    )
