"""LabelMe JSON, one file per image: polygon, rectangle, circle and mask; lines and points have no area."""

from __future__ import annotations

import base64
import binascii
import math
from pathlib import Path
from typing import Any

import numpy as np

from segue.core.errors import UserError, suggest
from segue.data.annotations.base import Box, Disc, Drawing, Geometry, Outline, Patch, Region, class_name, show
from segue.data.annotations.document import (
    as_object,
    get_list,
    get_size,
    get_text,
    has_area,
    points_of,
    read_document,
)
from segue.data.annotations.locate import Places

NO_AREA = ("line", "linestrip", "point", "points")
SHAPES = ("polygon", "rectangle", "circle", "mask", "rotation")
"""rotation: a turned rectangle of X-AnyLabeling, which writes LabelMe's format"""


def is_labelme(document: dict[str, Any]) -> bool:
    return "shapes" in document


def read_labelme(path: Path, document: dict[str, Any], places: Places) -> Drawing:
    """One file; later shapes lie on top."""
    size = get_size(document, ("imageWidth", "imageHeight"), str(path))
    image, name = _find_image(path, document, places)
    regions, left_out = [], 0
    for number, value in enumerate(get_list(document, "shapes", str(path))):
        where = f"{path}, shape {number}"
        shape = as_object(value, where)
        label = class_name(shape.get("label"), where)
        geometry = _read_geometry(shape, where)
        if geometry is None:
            left_out += 1
        else:
            regions.append(Region(label, geometry))
    return Drawing(path, name, image, size, tuple(regions), split=places.split(path), left_out=left_out)


def _find_image(path: Path, document: dict[str, Any], places: Places) -> tuple[Path | None, str]:
    """The image's file and name; no file when the image is inside the JSON and nowhere else."""
    where = str(path)
    embedded = document.get("imageData")
    if embedded is not None and not isinstance(embedded, str):
        raise UserError(f"{where}: 'imageData' should be text in base64 or null, not {show(embedded)}.")
    try:
        found = places.find(get_text(document, "imagePath", where), path.parent, where)
        return found, places.name(found)
    except UserError:
        if not embedded:
            raise
        return None, places.name(path)


def read_embedded(path: Path) -> bytes:
    """The image inside a LabelMe file."""
    return _decode(read_document(path).get("imageData"), f"{path}: 'imageData'")


def _decode(text: object, where: str) -> bytes:
    try:
        if not isinstance(text, str):
            raise ValueError("it is not text")
        return base64.b64decode("".join(text.split()), validate=True)
    except (ValueError, binascii.Error) as error:
        raise UserError(f"{where} is not base64: {error}. The file may be cut off or damaged.") from error


def _read_geometry(shape: dict[str, Any], where: str) -> Geometry | None:
    """None for a shape without area."""
    kind = shape.get("shape_type") or "polygon"  # old files do not say
    if kind in NO_AREA:
        return None
    if kind not in SHAPES:
        known = suggest(str(kind)[:30], (*SHAPES, *NO_AREA))
        raise UserError(f"{where}: the shape type {show(kind)} is unknown.{known}")
    points = points_of(shape.get("points"), where)
    if kind == "mask":
        return _read_patch(shape, points, where)
    if kind == "circle":
        return _read_disc(points, where)
    if kind == "rectangle":
        return _read_box(points, where)
    return Outline(points) if has_area(points) else None


def _read_box(points: np.ndarray, where: str) -> Box | None:
    """Two opposite corners, or all four as X-AnyLabeling writes them."""
    if len(points) not in (2, 4):
        raise UserError(f"{where}: a rectangle has 2 or 4 points, not {len(points)}.")
    (left, top), (right, bottom) = points.min(axis=0).tolist(), points.max(axis=0).tolist()
    return Box(left, top, right, bottom) if left < right and top < bottom else None


def _read_disc(points: np.ndarray, where: str) -> Disc | None:
    """The middle and a point on the rim."""
    if len(points) != 2:
        raise UserError(f"{where}: a circle has 2 points, its middle and one on its rim, not {len(points)}.")
    (x, y), (rim_x, rim_y) = points.tolist()
    radius = math.hypot(rim_x - x, rim_y - y)
    return Disc(x, y, radius) if radius > 0 else None


def _read_patch(shape: dict[str, Any], points: np.ndarray, where: str) -> Patch:
    """Two corners, both included, and a PNG of that size."""
    if len(points) != 2:
        raise UserError(f"{where}: a mask has 2 points, its first and its last corner, not {len(points)}.")
    (left, top), (right, bottom) = ((int(x), int(y)) for x, y in points.tolist())
    png = _decode(shape.get("mask"), f"{where}: 'mask'")
    return Patch(left, top, right - left + 1, bottom - top + 1, png)
