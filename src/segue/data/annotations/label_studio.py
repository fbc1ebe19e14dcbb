"""Label Studio's own JSON: a list of tasks, each an image with brush masks or polygons.

What people drew counts; where nobody did, a prediction stands in, such as `segue predict --to labelstudio`
writes. Later regions lie on top.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from segue.core.errors import UserError
from segue.data.annotations.base import (
    Drawing,
    Geometry,
    Outline,
    Region,
    Source,
    class_name,
    classes_of,
    note_first,
    show,
)
from segue.data.annotations.brush import unpack
from segue.data.annotations.document import as_object, get_list, get_size, has_area, points_of
from segue.data.annotations.locate import Places
from segue.data.annotations.rle import runs_of

KINDS = ("brushlabels", "polygonlabels")
NO_AREA = ("keypointlabels", "choices", "textarea", "rating", "number", "taxonomy", "relation", "labels")
_UPLOADED = re.compile(r"[0-9a-f]{8}-(?=.)")
"""beginning of the name of a file that was uploaded"""


def is_tasks(document: object) -> bool:
    """Whether a JSON file holds tasks; JSON-MIN does not, which is another export of Label Studio."""
    first = document[0] if isinstance(document, list) and document else None
    return isinstance(first, dict) and isinstance(first.get("data"), dict)


def read_label_studio(name: str, files: Sequence[tuple[Path, list[Any]]], places: Places) -> Source:
    """All tasks of all files; tasks with nothing drawn or predicted are left out."""
    drawings, untouched, guessed = list[Drawing](), 0, 0
    for path, tasks in files:
        for number, value in enumerate(tasks):
            where = f"{path}, task {number}"
            task = as_object(value, where)
            drawn, predicted = _last(task, "annotations"), _last(task, "predictions")
            result = drawn if drawn is not None else predicted
            untouched += result is None
            guessed += drawn is None and predicted is not None
            if result is not None:
                drawings.append(_read_task(task, result, path, where, places))
    names = sorted({region.name for drawing in drawings for region in drawing.regions})
    if bad := next((one.problem for one in drawings if one.problem and not names), ""):
        raise UserError(bad)
    first = files[0][0]
    notes = (
        *note_first(
            [(untouched, first)],
            "task without annotations was left out",
            "tasks without annotations were left out",
        ),
        *note_first(
            [(guessed, first)],
            "image has a prediction alone, which nobody corrected",
            "images have predictions alone, which nobody corrected",
        ),
    )
    return Source(name, "labelstudio", classes_of(names, first), tuple(drawings), notes)


def _last(task: dict[str, Any], field: str) -> list[Any] | None:
    """The result of the last entry that was not cancelled."""
    entries = task.get(field)
    results = [
        entry["result"]
        for entry in (entries if isinstance(entries, list) else [])
        if isinstance(entry, dict)
        and isinstance(entry.get("result"), list)
        and not entry.get("was_cancelled")
    ]
    return results[-1] if results else None


def _read_task(task: dict[str, Any], result: list[Any], path: Path, where: str, places: Places) -> Drawing:
    split, reference = places.split(path), ""
    try:
        reference = _reference(task["data"], where)
        image = _find(reference, path, where, places)
        regions, size, left_out = [], None, 0
        for number, value in enumerate(result):
            inside = f"{where}, region {number}"
            region = as_object(value, inside)
            found = _read_region(region, inside)
            left_out += found is None
            if found is not None:
                regions.append(found)
                size = get_size(region, ("original_width", "original_height"), inside) or size
    except UserError as error:
        return Drawing(path, reference or where, split=split, problem=str(error))
    return Drawing(path, places.name(image), image, size, tuple(regions), split=split, left_out=left_out)


def _reference(data: dict[str, Any], where: str) -> str:
    """The image of a task: the text under `image`, or the only one."""
    texts = [value for value in data.values() if isinstance(value, str) and value.strip()]
    found = data.get("image") or (texts[0] if len(texts) == 1 else None)
    if not isinstance(found, str):
        raise UserError(f"{where}: 'data' should name an image, but is {show(data)}.")
    return found


def _find(reference: str, path: Path, where: str, places: Places) -> Path:
    """The file of /data/local-files/?d=FILE, /data/upload/1/0a1b2c3d-FILE or an address."""
    try:
        address = urlsplit(reference)
        inside = dict(part.partition("=")[::2] for part in address.query.split("&"))
    except ValueError as error:
        raise UserError(f"{where}: {show(reference)} is no address of an image: {error}.") from error
    text = unquote(inside.get("d") or address.path)
    *folders, last = text.split("/")
    bare = "/".join([*folders, _UPLOADED.sub("", last, count=1)])
    if bare != text and places.look_up(text, path.parent, where) is None:
        text = bare
    return places.find(text, path.parent, where)


def _read_region(region: dict[str, Any], where: str) -> Region | None:
    """None for a region without area."""
    kind = region.get("type")
    if kind in NO_AREA:
        return None
    if kind not in KINDS:
        raise UserError(
            f"{where}: a region of the type {show(kind)} is not read: {' and '.join(KINDS)} are. In Label"
            " Studio, export as COCO."
        )
    value = as_object(region.get("value"), where)
    labels = get_list(value, kind, where)
    if len(labels) != 1:
        raise UserError(f"{where}: a region should have one label, not {show(labels)}.")
    size = get_size(region, ("original_width", "original_height"), where)
    if size is None:
        raise UserError(f"{where}: 'original_width' and 'original_height' are missing.")
    geometry = _geometry(kind, value, size, where)
    return None if geometry is None else Region(class_name(labels[0], where), geometry)


def _geometry(kind: str, value: dict[str, Any], size: tuple[int, int], where: str) -> Geometry | None:
    width, height = size
    if kind == "brushlabels":
        return runs_of(unpack(value.get("rle"), (height, width), where))
    points = points_of(value.get("points"), where) * [width / 100, height / 100]  # they are in percent
    return Outline(points) if has_area(points) else None
