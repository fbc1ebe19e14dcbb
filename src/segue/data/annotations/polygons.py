"""Cityscapes polygons: NAME_gtFine_polygons.json with imgWidth, imgHeight and labelled polygons.

The images lie in leftImg8bit/SPLIT/CITY beside gtFine/SPLIT/CITY, or beside the JSON. A label such as
"cargroup" is many cars that nobody told apart: the class car. Pixels without a polygon are background.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from segue.core.errors import UserError
from segue.data.annotations.base import Drawing, Outline, Region, class_name, show
from segue.data.annotations.document import as_object, get_list, get_size, has_area, points_of
from segue.data.annotations.locate import Places
from segue.data.layout import IMAGE_SUFFIXES

ANNOTATION_FOLDERS = ("gtFine", "gtCoarse")
IMAGE_FOLDER = "leftImg8bit"
_ENDING = re.compile(r"(_gt(Fine|Coarse))?_polygons$")
_GROUP = re.compile(r"(\S)group$")


def is_polygons(document: dict[str, Any]) -> bool:
    return "objects" in document and bool({"imgWidth", "imgHeight"} & document.keys())


def stem_of(path: Path) -> str:
    """What the names of an image and its polygons have in common."""
    return _ENDING.sub("", path.stem).removesuffix(f"_{IMAGE_FOLDER}")


def read_polygons(path: Path, document: dict[str, Any], places: Places) -> Drawing:
    """One file; later objects lie on top."""
    size = get_size(document, ("imgWidth", "imgHeight"), str(path))
    image = find_image(path, _ENDING.sub("", path.stem), places)
    regions, left_out = [], 0
    for number, value in enumerate(get_list(document, "objects", str(path))):
        where = f"{path}, object {number}"
        item = as_object(value, where)
        if item.get("deleted") in (1, True):
            continue
        name = _GROUP.sub(r"\1", class_name(item.get("label"), where))
        points = points_of(item.get("polygon"), where)
        if has_area(points):
            regions.append(Region(name, Outline(points)))
        else:
            left_out += 1
    return Drawing(
        path, places.name(image), image, size, tuple(regions), split=places.split(path), left_out=left_out
    )


def find_image(path: Path, stem: str, places: Places) -> Path:
    """The image of an annotation file: `stem` is what their names have in common."""
    names = [
        f"{stem}{middle}{ending}" for middle in (f"_{IMAGE_FOLDER}", "") for ending in sorted(IMAGE_SUFFIXES)
    ]
    folders = [path.parent]
    for name in ANNOTATION_FOLDERS:
        if name in path.parts:
            at = len(path.parts) - 1 - path.parts[::-1].index(name)
            folders.insert(0, Path(*path.parts[:at], IMAGE_FOLDER, *path.parts[at + 1 : -1]))
    for folder in folders:
        for name in names:
            if places.allows(folder / name):
                return folder / name
    for name in names:
        if (found := places.look_up(name, path.parent, str(path), places.split(path))) is not None:
            return found
    raise UserError(
        f"{path}: its image is missing: neither {folders[0] / names[0]} nor {show(stem + '.jpg')} or another"
        " image of that name beside it. Name the folder that holds the images with --images FOLDER."
    )
