"""Predicted masks as annotations that other tools import, to be corrected there.

Nothing is lost: COCO gets run-length masks, LabelMe its shape type `mask`, Label Studio its brush masks, VOC
palette PNGs with the colours in labelmap.txt. A region is all of a class in an image. `segue data convert`
reads each of them back to the same masks. Masks are read from the folder of a prediction; the images stay
where they are.
"""

from __future__ import annotations

import base64
import io
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

import numpy as np
from PIL import Image

from segue.core.classes import voc_palette
from segue.core.errors import UserError
from segue.core.records import atomic_file, write_json, write_text
from segue.data.annotations.brush import pack
from segue.data.annotations.rle import runs_of
from segue.data.images import mask_picture, read_mask
from segue.deploy.inputs import Input
from segue.deploy.outputs import MASKS, Record

Target = Literal["coco", "labelme", "labelstudio", "voc"]
COCO_FILE = "instances.json"
TASKS_FILE, CONFIG_FILE = "tasks.json", "config.xml"


@dataclass(frozen=True)
class Annotated:
    """An image with its mask."""

    path: Path
    """image file"""
    name: str
    """path of the image below the folder that all images are in, with /"""
    key: str
    ids: np.ndarray


def common_folder(inputs: Sequence[Input]) -> Path:
    """The folder that all images are in, links followed."""
    return Path(os.path.commonpath([os.path.dirname(os.path.realpath(one.path or "")) for one in inputs]))


def check_target(target: Target, inputs: Sequence[Input], classes: Sequence[str]) -> None:
    """Whether these can be annotated in this format: said before hours of work."""
    if bad := next((one for one in inputs if one.kind != "image"), None):
        raise UserError(f"--to is for image files: {bad.name} is none that another tool could open.")
    if len(classes) > 255:
        raise UserError(f"--to needs masks of 8 bits: {len(classes)} classes are too many.")
    if target != "voc":
        return
    if bad_name := next((name for name in classes if ":" in name or name.startswith("#")), None):
        raise UserError(f"The class name '{bad_name}' cannot stand in labelmap.txt: use --to coco.")
    seen: dict[str, Input] = {}
    for one in inputs:
        stem = os.path.splitext(os.path.realpath(one.path or ""))[0]
        if (other := seen.setdefault(stem, one)) is not one:
            raise UserError(
                f"{other.name} and {one.name} would be one mask of VOC: rename one, or use --to coco."
            )


def annotate(
    target: Target,
    out: Path,
    inputs: Sequence[Input],
    records: Sequence[Record],
    classes: Sequence[str],
) -> tuple[Path, list[tuple[str, str]]]:
    """Write the annotations of all finished images to a folder in `out`.

    Returns that folder, and which images were left out and why.
    """
    folder, skipped = out / target, list[tuple[str, str]]()
    WRITERS[target](folder, out, _annotated(out, inputs, records, skipped), classes)
    return folder, skipped


def _annotated(
    out: Path, inputs: Sequence[Input], records: Sequence[Record], skipped: list[tuple[str, str]]
) -> Iterator[Annotated]:
    common, by_key = common_folder(inputs), {one.key: one for one in inputs}
    for record in records:
        path = by_key[record.key].path
        assert path is not None, "checked by check_target"
        name = Path(os.path.realpath(path)).relative_to(common).as_posix()
        try:
            yield Annotated(path, name, record.key, read_mask(out / MASKS / f"{record.key}.png"))
        except UserError as error:  # more pixels than are decoded at once
            skipped.append((record.image, str(error)))


def _write_coco(folder: Path, out: Path, images: Iterator[Annotated], classes: Sequence[str]) -> None:
    """One file: https://cocodataset.org/#format-data. Ids begin with 1; background is no category."""
    listed: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for number, image in enumerate(images, start=1):
        height, width = image.ids.shape
        listed.append({"id": number, "file_name": image.name, "width": width, "height": height})
        for channel in _shown(image.ids):
            region = image.ids == channel
            (left, top), (right, bottom) = _corners(region)
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": number,
                    "category_id": channel,
                    "segmentation": {"size": [height, width], "counts": runs_of(region).counts.tolist()},
                    "area": int(region.sum()),
                    "bbox": [left, top, right - left + 1, bottom - top + 1],
                    "iscrowd": 1,  # what COCO calls a region that is given by run lengths
                }
            )
    categories = [
        {"id": channel, "name": name, "supercategory": ""} for channel, name in enumerate(classes) if channel
    ]
    document = {"info": {}, "licenses": [], "images": listed, "annotations": annotations}
    _write_compact(folder / COCO_FILE, out, {**document, "categories": categories})


def _write_compact(path: Path, out: Path, document: object) -> None:
    """JSON on one line: run lengths would take a line each."""
    write_text(path, json.dumps(document, ensure_ascii=False), out)


def _write_labelme(folder: Path, out: Path, images: Iterator[Annotated], classes: Sequence[str]) -> None:
    """A file per image, as LabelMe 5 writes it; `labelme IMAGES --output FOLDER` opens them."""
    folder.mkdir(parents=True, exist_ok=True)
    for image in images:
        height, width = image.ids.shape
        document = {
            "version": "5.5.0",
            "flags": {},
            "shapes": [_shape(image.ids == channel, classes[channel]) for channel in _shown(image.ids)],
            "imagePath": Path(os.path.relpath(os.path.realpath(image.path), folder.resolve())).as_posix(),
            "imageData": None,
            "imageHeight": height,
            "imageWidth": width,
        }
        write_json(folder / f"{image.key}.json", document, out)


def _shape(region: np.ndarray, name: str) -> dict[str, Any]:
    """A mask: both corners belong to it, and between them lies a PNG of one bit per pixel."""
    (left, top), (right, bottom) = _corners(region)
    png = io.BytesIO()
    Image.fromarray(region[top : bottom + 1, left : right + 1]).save(png, format="PNG")
    return {
        "label": name,
        "points": [[left, top], [right, bottom]],
        "group_id": None,
        "description": "",
        "shape_type": "mask",
        "flags": {},
        "mask": base64.b64encode(png.getvalue()).decode(),
    }


def _write_label_studio(folder: Path, out: Path, images: Iterator[Annotated], classes: Sequence[str]) -> None:
    """Tasks with predictions, which Label Studio imports, and the labelling interface that goes with them.

    Images are named as files of a local storage: below the folder in which their common folder lies.
    """
    tasks = []
    for image in images:
        common = Path(os.path.realpath(image.path)).parents[image.name.count("/")]
        result = [_brushed(image.ids == channel, classes[channel]) for channel in _shown(image.ids)]
        place = quote(f"{common.name}/{image.name}", errors="surrogateescape")
        tasks.append(
            {
                "data": {"image": f"/data/local-files/?d={place}"},
                "predictions": [{"model_version": "segue", "result": result}],
            }
        )
    _write_compact(folder / TASKS_FILE, out, tasks)
    labels = "".join(f"    <Label value={quoteattr(name)}/>\n" for name in classes[1:])
    _write_lines(
        folder / CONFIG_FILE,
        out,
        [
            "<View>",
            '  <Image name="image" value="$image" zoom="true"/>',
            f'  <BrushLabels name="label" toName="image">\n{labels}  </BrushLabels>',
            "</View>",
        ],
    )


def _brushed(region: np.ndarray, name: str) -> dict[str, Any]:
    height, width = region.shape
    return {
        "from_name": "label",
        "to_name": "image",
        "type": "brushlabels",
        "original_width": width,
        "original_height": height,
        "image_rotation": 0,
        "value": {"format": "rle", "rle": pack(region), "brushlabels": [name]},
    }


def _write_voc(folder: Path, out: Path, images: Iterator[Annotated], classes: Sequence[str]) -> None:
    """As CVAT's "Segmentation mask 1.1": masks in VOC's colours, labelmap.txt and a list; no images."""
    keys = []
    for image in images:
        key = os.path.splitext(image.name)[0]
        keys.append(f'"{key}"' if " " in key else key)
        with atomic_file(folder / "SegmentationClass" / f"{key}.png", out) as file:
            mask_picture(image.ids).save(file, format="PNG")
    flat = voc_palette()
    colours = [",".join(map(str, flat[3 * place : 3 * place + 3])) for place in range(len(classes))]
    lines = [f"{name}:{colour}::" for name, colour in zip(classes, colours, strict=True)]
    _write_lines(folder / "labelmap.txt", out, ["# label:color_rgb:parts:actions", *lines])
    _write_lines(folder / "ImageSets" / "Segmentation" / "default.txt", out, keys)


def _write_lines(path: Path, out: Path, lines: Sequence[str]) -> None:
    with atomic_file(path, out) as file:
        file.write("".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape"))


def _shown(ids: np.ndarray) -> list[int]:
    """Channels that some pixel has, without background."""
    return [channel for channel in np.unique(ids).tolist() if channel]


def _corners(region: np.ndarray) -> tuple[tuple[int, int], tuple[int, int]]:
    """The first and last column and row of a region: (left, top), (right, bottom)."""
    rows, columns = np.flatnonzero(region.any(1)), np.flatnonzero(region.any(0))
    return (int(columns[0]), int(rows[0])), (int(columns[-1]), int(rows[-1]))


WRITERS: dict[Target, Callable[[Path, Path, Iterator[Annotated], Sequence[str]], None]] = {
    "coco": _write_coco,
    "labelme": _write_labelme,
    "labelstudio": _write_label_studio,
    "voc": _write_voc,
}
