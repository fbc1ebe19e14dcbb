"""COCO JSON: polygons, run-length masks plain and compressed.

Also as Label Studio (ids from 0, images under their upload path), CVAT (sub-folders) and Roboflow (a file per
split, images beside it) write it. COCO knows no drawing order: large regions are drawn before small ones.
`iscrowd` says nothing here: a crowd is of its class, and CVAT calls every mask of a brush one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from segue.core.errors import UserError
from segue.data.annotations.base import (
    Drawing,
    Region,
    Rings,
    Source,
    class_name,
    classes_of,
    show,
    split_of,
    tell,
)
from segue.data.annotations.document import as_object, get_list, get_size, get_text, numbers_of
from segue.data.annotations.draw import load_pycocotools
from segue.data.annotations.locate import Places
from segue.data.annotations.rle import read_runs

Id = int | str


def is_coco(document: dict[str, Any]) -> bool:
    return {"images", "annotations", "categories"} <= document.keys()


def read_coco(name: str, files: Sequence[tuple[Path, dict[str, Any]]], places: Places) -> Source:
    """All files together: classes in the order of their ids, those of the first file first."""
    names: list[str] = []
    groups: set[str] = set()
    used: set[str] = set()
    drawings: list[Drawing] = []
    for path, document in choose(files):
        categories = _read_categories(document, path)
        names += [categories[key] for key in sorted(categories, key=lambda key: (isinstance(key, str), key))]
        drawings += _read_file(document, categories, path, places)
        groups |= _groups(document)
        used |= {categories[annotation["category_id"]] for annotation in document["annotations"]}
    if any(isinstance(region.geometry, Rings) for drawing in drawings for region in drawing.regions):
        load_pycocotools()  # its absence is one sentence, not one per image
    where = files[0][0] if len(files) == 1 else places.root
    rest = len(files) - len(choose(files))
    files_beside = tell(
        rest, "COCO file beside instances_*.json was", "COCO files beside instances_*.json were"
    )
    notes = [f"{files_beside} ignored."] if rest else []
    empty = groups & set(names) - used  # Roboflow's first category is such a one
    notes += [
        f"'{group}' is the group of other classes, without annotations: no class." for group in sorted(empty)
    ]
    classes = classes_of([name for name in names if name not in empty], where)
    return Source(name, "coco", classes, tuple(drawings), tuple(notes))


def choose(files: Sequence[tuple[Path, dict[str, Any]]]) -> Sequence[tuple[Path, dict[str, Any]]]:
    """COCO's own folder has files of key points and stuff on the same images: the instances are meant."""
    instances = [file for file in files if file[0].name.startswith("instances_")]
    return instances or files


@dataclass
class _Entry:
    """An image of the file while its annotations come in."""

    drawing: Drawing
    regions: list[Region] = field(default_factory=list)
    left_out: int = 0
    boxes: int = 0
    problem: str = ""

    def finish(self) -> Drawing:
        return replace(
            self.drawing,
            regions=tuple(self.regions),
            left_out=self.left_out,
            boxes=self.boxes,
            problem=self.drawing.problem or self.problem,
        )


def _read_file(
    document: dict[str, Any], categories: dict[Id, str], path: Path, places: Places
) -> list[Drawing]:
    entries = _read_images(document, path, places)
    for number, value in enumerate(get_list(document, "annotations", str(path))):
        where = f"{path}, annotation {number}"
        annotation = as_object(value, where)
        entry = _look_up(annotation, "image_id", entries, where, "image")
        name = _look_up(annotation, "category_id", categories, where, "category")
        try:
            region = _read_region(annotation, name, where)
        except UserError as error:
            entry.problem = entry.problem or str(error)
            continue
        if region is not None:
            entry.regions.append(region)
        elif annotation.get("bbox") and not annotation.get("segmentation"):
            entry.boxes += 1
        else:
            entry.left_out += 1
    return [entry.finish() for entry in entries.values()]


def _read_categories(document: dict[str, Any], path: Path) -> dict[Id, str]:
    categories: dict[Id, str] = {}
    for number, value in enumerate(get_list(document, "categories", str(path))):
        where = f"{path}, category {number}"
        category = as_object(value, where)
        key, name = _id(category, "id", where), class_name(category.get("name"), where)
        if key in categories:
            raise UserError(f"{where}: the id {show(key)} is also that of '{categories[key]}'.")
        if name in categories.values():
            raise UserError(f"{where}: there are two categories of the name '{name}'. Join them.")
        categories[key] = name
    return categories


def _groups(document: dict[str, Any]) -> set[str]:
    """Names that other categories have as their supercategory."""
    pairs = [(category.get("supercategory"), category["name"]) for category in document["categories"]]
    return {group for group, name in pairs if isinstance(group, str) and group != name}


def _read_images(document: dict[str, Any], path: Path, places: Places) -> dict[Id, _Entry]:
    split = split_of(path.stem) or places.split(path)
    entries: dict[Id, _Entry] = {}
    for number, value in enumerate(get_list(document, "images", str(path))):
        where = f"{path}, image {number}"
        image = as_object(value, where)
        key = _id(image, "id", where)
        if key in entries:
            raise UserError(f"{where}: the id {show(key)} is also that of {entries[key].drawing.name}.")
        try:
            reference = get_text(image, "file_name", where)
            size = get_size(image, ("width", "height"), where)
            found = places.find(reference, path.parent, where, split)
            drawing = Drawing(path, places.name(found), found, size, largest_first=True, split=split)
        except UserError as error:
            drawing = Drawing(path, show(image.get("file_name")), split=split, problem=str(error))
        entries[key] = _Entry(drawing)
    return entries


def _id(document: dict[str, Any], name: str, where: str) -> Id:
    value = document.get(name)
    if type(value) not in (int, str):
        raise UserError(f"{where}: '{name}' should be a whole number, not {show(value)}.")
    return value


def _look_up(annotation: dict[str, Any], name: str, table: dict[Id, Any], where: str, noun: str) -> Any:
    key = _id(annotation, name, where)
    if key not in table:
        raise UserError(f"{where}: there is no {noun} of the id {show(key)} in this file.")
    return table[key]


def _read_region(annotation: dict[str, Any], name: str, where: str) -> Region | None:
    """None for an annotation without area, such as a bounding box alone."""
    segmentation = annotation.get("segmentation")
    if isinstance(segmentation, dict):
        return Region(name, read_runs(segmentation, where))
    if segmentation is None or segmentation == []:
        return None
    if not isinstance(segmentation, list):
        raise UserError(
            f"{where}: 'segmentation' should be polygons or a run-length mask, not {show(segmentation)}."
        )
    polygons = []
    for polygon in segmentation:
        if not isinstance(polygon, list) or len(polygon) % 2:
            raise UserError(f"{where}: a polygon should be a list of x, y, x, y, ..., not {show(polygon)}.")
        points = numbers_of(polygon, where).reshape(-1, 2)
        if len(points) >= 3:
            polygons.append(points)
    return Region(name, Rings(tuple(polygons))) if polygons else None
