"""Which format a file or folder is in, and reading it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from segue.core.errors import UserError
from segue.core.ordinary import user_path
from segue.data.annotations.base import Drawing, Source, classes_of, tell
from segue.data.annotations.city_ids import id_masks, read_city_ids
from segue.data.annotations.coco import is_coco, read_coco
from segue.data.annotations.document import object_of, read_json
from segue.data.annotations.foreign import advise
from segue.data.annotations.label_studio import is_tasks, read_label_studio
from segue.data.annotations.labelme import is_labelme, read_labelme
from segue.data.annotations.locate import Places, walk
from segue.data.annotations.masks import is_pairs, is_voc, read_masks
from segue.data.annotations.polygons import ANNOTATION_FOLDERS, is_polygons, read_polygons, stem_of
from segue.data.layout import IMAGE_SUFFIXES

LOOKED_FOR = (
    "COCO (a JSON file with images, annotations and categories),"
    " LabelMe (a JSON file with shapes for each image),"
    " Label Studio (a JSON file with tasks),"
    " Cityscapes polygons (NAME_polygons.json with imgWidth, imgHeight and objects),"
    " Cityscapes ids (NAME_labelIds.png),"
    " VOC (folders JPEGImages and SegmentationClass with labelmap.txt or classes.txt),"
    " or folders images and masks with classes.txt"
)
TITLES = {
    "coco": "COCO",
    "labelme": "LabelMe",
    "labelstudio": "Label Studio",
    "polygons": "Cityscapes polygons",
}
ONE_IMAGE: dict[str, Callable[[Path, dict[str, Any], Places], Drawing]] = {
    "labelme": read_labelme,
    "polygons": read_polygons,
}


@dataclass
class _Found:
    """What the JSON files of a source hold. LabelMe's are read at once, for they may hold whole images."""

    coco: list[tuple[Path, dict[str, Any]]] = field(default_factory=list)
    tasks: list[tuple[Path, list[Any]]] = field(default_factory=list)
    drawings: dict[str, list[Drawing]] = field(default_factory=dict)
    broken: list[Drawing] = field(default_factory=list)
    other: list[Path] = field(default_factory=list)

    @property
    def kinds(self) -> dict[str, Path]:
        """The formats and the first file of each."""
        coco = {"coco": self.coco[0][0]} if self.coco else {}
        tasks = {"labelstudio": self.tasks[0][0]} if self.tasks else {}
        return coco | tasks | {kind: drawings[0].file for kind, drawings in self.drawings.items()}


def read_source(path: Path, images: Path | None = None) -> Source:
    """The annotations in a file or folder; `images` is where the images are, if not there too."""
    path = user_path(path)
    if not path.exists():
        raise UserError(f"{path} does not exist. Name a folder of annotations, or a JSON file.")
    if not path.is_dir() and path.suffix.lower() != ".json":
        plain = f"{path} is neither a folder nor a JSON file. Unpack it, if it is an archive."
        raise UserError(advise(path) or plain)
    folder = path if path.is_dir() else path.parent
    if folder.name in (*ANNOTATION_FOLDERS, "annotations"):
        folder = folder.parent  # Cityscapes, COCO and CVAT have their images beside these
    places = Places(folder, None if images is None else user_path(images))
    found = _look(path, places)
    masks = path.is_dir() and (is_voc(path) or is_pairs(path))
    kinds = {TITLES[kind]: first for kind, first in found.kinds.items()}
    if masks:
        kinds["masks"] = path / ("SegmentationClass" if is_voc(path) else "masks")
    if len(kinds) > 1:
        listed = ", ".join(f"{title} ({first})" for title, first in kinds.items())
        raise UserError(
            f"{path} holds annotations of several formats: {listed}. Name one file or folder of them."
        )
    if masks:
        return read_masks(path.resolve().name, places)
    if not kinds and not found.broken and path.is_dir() and (ids := id_masks(path)):
        return read_city_ids(path.resolve().name, ids, places)
    if not kinds:
        plain = found.broken[0].problem if found.broken else _nothing(path, found)
        raise UserError(advise(path) or plain)
    return _read_json(path, found, places)


def _look(path: Path, places: Places) -> _Found:
    found = _Found()
    files = [file for file in walk(path) if file.suffix.lower() == ".json"] if path.is_dir() else [path]
    for file in files:
        try:
            content = read_json(file)
            if is_tasks(content):
                found.tasks.append((file, content))
                continue
            document = object_of(content, file)
            if is_coco(document):
                found.coco.append((file, document))
                continue
        except UserError as error:
            found.broken.append(Drawing(file, places.name(file), problem=str(error)))
            continue
        kind = "labelme" if is_labelme(document) else "polygons" if is_polygons(document) else ""
        if not kind:
            found.other.append(file)
            continue
        try:
            drawing = ONE_IMAGE[kind](file, document, places)
        except UserError as error:
            drawing = Drawing(file, places.name(file), split=places.split(file), problem=str(error))
        found.drawings.setdefault(kind, []).append(drawing)
    return found


def _nothing(path: Path, found: _Found) -> str:
    seen = f" {found.other[0]} is JSON, but of another kind." if found.other else ""
    return f"No annotations were found in {path}.{seen} Looked for: {LOOKED_FOR}."


def _read_json(path: Path, found: _Found, places: Places) -> Source:
    name = path.stem if path.is_file() else path.resolve().name
    ignored = tell(len(found.other), "JSON file of another kind was", "JSON files of another kind were")
    notes = (f"{ignored} ignored, first {found.other[0]}.",) if found.other else ()
    if found.coco or found.tasks:
        if found.broken:
            raise UserError(found.broken[0].problem)
        source = (
            read_coco(name, found.coco, places)
            if found.coco
            else read_label_studio(name, found.tasks, places)
        )
        return Source(source.name, source.format, source.classes, source.drawings, source.notes + notes)
    ((kind, drawings),) = found.drawings.items()
    if kind == "polygons":
        drawings, notes = _prefer_fine(drawings, notes)
    drawings = sorted([*drawings, *found.broken], key=lambda drawing: drawing.file)
    bad = next((drawing.problem for drawing in drawings if drawing.problem), "")
    if bad and not any(drawing.regions for drawing in drawings):
        raise UserError(bad)
    if path.is_dir():
        notes += _note_lonely(drawings)
    names = sorted({region.name for drawing in drawings for region in drawing.regions})
    return Source(name, kind, classes_of(names, path), tuple(drawings), notes)


def _note_lonely(drawings: list[Drawing]) -> tuple[str, ...]:
    """A sentence on images without a file, in the folders where images with one are."""
    used = {drawing.image for drawing in drawings if drawing.image is not None}
    broken = {stem_of(drawing.file) for drawing in drawings if drawing.image is None}
    lonely = [
        path.name
        for folder in sorted({image.parent for image in used})
        for path in sorted(folder.iterdir())
        if path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith(".")
        if path not in used and stem_of(path) not in broken
    ]
    told = tell(len(lonely), "image without an annotation file was", "images without an annotation file were")
    return (f"{told} left out, first {lonely[0]}.",) if lonely else ()


def _prefer_fine(drawings: list[Drawing], notes: tuple[str, ...]) -> tuple[list[Drawing], tuple[str, ...]]:
    """Cityscapes has coarse polygons too, partly of the same images."""
    fine = [drawing for drawing in drawings if "gtCoarse" not in drawing.file.parts]
    coarse = len(drawings) - len(fine)
    if not fine or not coarse:
        return drawings, notes
    told = tell(coarse, "file of gtCoarse was", "files of gtCoarse were")
    return fine, (*notes, f"{told} left out, because there are fine ones.")
