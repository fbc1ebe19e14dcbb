"""Small sources of annotations, one builder per format, all of the same two pictures."""

import base64
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from segue.core.classes import voc_palette
from segue.core.errors import UserError
from segue.data.annotations import read_source
from segue.data.convert import convert

WIDTH, HEIGHT = 12, 10
EXPECTED = {key: np.zeros((HEIGHT, WIDTH), dtype=np.uint8) for key in ("one", "two")}
EXPECTED["one"][1:5, 2:8] = 1  # cat
EXPECTED["one"][3:5, 6:8] = 2  # a dog that lies on the cat
EXPECTED["two"][0:4, 0:4] = 255
EXPECTED["two"][5:9, 3:9] = 2


def photo(path: Path, seed: int = 0, size: tuple[int, int] = (WIDTH, HEIGHT), **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path, **options)
    return path


def png_text(pixels: np.ndarray) -> str:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def write(path: Path, document: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return path


def corners(left: int, top: int, right: int, bottom: int) -> list[list[int]]:
    """Corner points for programs that count the border in: right and bottom are the last pixels."""
    return [[left, top], [right, top], [right, bottom], [left, bottom]]


def flat(left: float, top: float, right: float, bottom: float) -> list[float]:
    """A rectangle for COCO, whose coordinates are pixel borders."""
    return [left, top, right, top, right, bottom, left, bottom]


def coco_document() -> dict[str, Any]:
    names = ["cat", "dog", "void"]
    shapes = [
        (1, 2, [flat(6, 3, 8, 5)]),
        (1, 1, [flat(2, 1, 8, 5)]),
        (2, 3, {"size": [HEIGHT, WIDTH], "counts": [0, 4, 6, 4, 6, 4, 6, 4, 86]}),
        (2, 2, [flat(3, 5, 9, 9)]),
    ]
    return {
        "images": [
            {"id": number, "file_name": f"{key}.jpg", "width": WIDTH, "height": HEIGHT}
            for number, key in ((1, "one"), (2, "two"))
        ],
        "categories": [{"id": number, "name": name} for number, name in enumerate(names, start=1)],
        "annotations": [
            {"id": number, "image_id": image, "category_id": category, "segmentation": shape, "iscrowd": 0}
            for number, (image, category, shape) in enumerate(shapes)
        ],
    }


def labelme_documents() -> dict[str, dict[str, Any]]:
    shapes = {
        "one": [("cat", "polygon", corners(2, 1, 7, 4), None), ("dog", "rectangle", [[6, 3], [7, 4]], None)],
        "two": [
            ("__ignore__", "mask", [[0, 0], [3, 3]], png_text(np.full((4, 4), 255, dtype=np.uint8))),
            ("dog", "polygon", corners(3, 5, 8, 8), None),
        ],
    }
    fields = ("label", "shape_type", "points", "mask")
    return {
        key: {
            "version": "5.4.1",
            "flags": {},
            "shapes": [dict(zip(fields, shape, strict=True)) for shape in listed],
            "imagePath": f"{key}.jpg",
            "imageData": None,
            "imageHeight": HEIGHT,
            "imageWidth": WIDTH,
        }
        for key, listed in shapes.items()
    }


def polygons_documents() -> dict[str, dict[str, Any]]:
    objects = {
        "one": [("catgroup", corners(2, 1, 7, 4)), ("dog", corners(6, 3, 7, 4))],
        "two": [("ego vehicle", corners(0, 0, 3, 3)), ("dog", corners(3, 5, 8, 8))],
    }
    return {
        key: {
            "imgHeight": HEIGHT,
            "imgWidth": WIDTH,
            "objects": [{"label": label, "polygon": polygon} for label, polygon in listed],
        }
        for key, listed in objects.items()
    }


def make_coco(root: Path) -> Path:
    for seed, key in enumerate(EXPECTED):
        photo(root / "images" / f"{key}.jpg", seed)
    write(root / "annotations" / "instances_default.json", coco_document())
    return root


def make_labelme(root: Path) -> Path:
    for seed, (key, document) in enumerate(labelme_documents().items()):
        photo(root / f"{key}.jpg", seed)
        write(root / f"{key}.json", document)
    return root


def make_polygons(root: Path) -> Path:
    for seed, (key, document) in enumerate(polygons_documents().items()):
        split = "train" if key == "one" else "val"
        photo(root / "leftImg8bit" / split / "ulm" / f"{key}_leftImg8bit.png", seed)
        write(root / "gtFine" / split / "ulm" / f"{key}_gtFine_polygons.json", document)
    return root


def make_voc(root: Path) -> Path:
    """As CVAT exports it: colours tell the classes, their places in the palette say nothing."""
    write(
        root / "labelmap.txt",
        "# label:color_rgb:parts:actions\nbackground:0,0,0::\ncat:10,20,30::\ndog:1,2,3::\n",
    )
    colours = np.zeros((256, 3), dtype=np.uint8)
    colours[[1, 2, 255]] = (10, 20, 30), (1, 2, 3), (224, 224, 192)
    for seed, (key, mask) in enumerate(EXPECTED.items()):
        photo(root / "JPEGImages" / f"{key}.jpg", seed)
        path = root / "SegmentationClass" / f"{key}.png"
        path.parent.mkdir(exist_ok=True)
        if key == "one":
            Image.fromarray(colours[mask]).save(path)
        else:
            image = Image.fromarray(255 - mask)
            image.putpalette(colours[::-1].ravel().tolist())
            image.save(path)
    write(root / "ImageSets" / "Segmentation" / "train.txt", "one\n")
    write(root / "ImageSets" / "Segmentation" / "val.txt", "two\n")
    return root


def make_pairs(root: Path) -> Path:
    write(root / "classes.txt", "background\ncat\ndog\n")
    for seed, (key, mask) in enumerate(EXPECTED.items()):
        photo(root / "images" / f"{key}.jpg", seed)
        (root / "masks").mkdir(exist_ok=True)
        image = Image.fromarray(mask)
        image.putpalette(voc_palette())
        image.save(root / "masks" / f"{key}.png")
    return root


MAKERS = {
    "coco": make_coco,
    "labelme": make_labelme,
    "polygons": make_polygons,
    "voc": make_voc,
    "folder": make_pairs,
}


def masks_of(source: Path, out: Path, images: Path | None = None) -> dict[str, np.ndarray]:
    """The masks of a source after conversion, by key."""
    convert(read_source(source, images), out, "folder")
    return {path.stem: np.asarray(Image.open(path)) for path in sorted((out / "masks").glob("*.png"))}


def refusal(function: Any, *arguments: Any, **options: Any) -> str:
    with pytest.raises(UserError) as caught:
        function(*arguments, **options)
    return str(caught.value)
