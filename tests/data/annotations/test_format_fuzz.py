"""Whatever an annotation file holds: a folder is written, or a sentence says why not; all else stays."""

import copy
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from made_sources import MAKERS, labelme_documents

from segue.core.errors import UserError
from segue.data.annotations import read_source
from segue.data.convert import convert

NASTY = {
    "other": [None, True, {}],
    "number": [float("nan"), float("inf"), -1, 0, 1e308, 2**63, 10**400],
    "text": ["", "../../x.jpg", "/etc/passwd", "one.jpg", "\u0000", "\ud800", "x" * 300, "void"],
    "list": [[], [[]], [None], [1e308] * 6, [[1e308, -1e308]] * 3, [[0] * 4]],
}
ALL_NASTY = [value for values in NASTY.values() for value in values]
FILES = {
    "coco": "annotations/instances_default.json",
    "labelme": "two.json",
    "polygons": "gtFine/train/ulm/one_gtFine_polygons.json",
    "voc": "labelmap.txt",
    "folder": "classes.txt",
}
JSON = ("coco", "labelme", "polygons")
OTHER_FILES = {
    "voc": ["SegmentationClass/one.png", "ImageSets/Segmentation/train.txt", "labelmap.txt"],
    "folder": ["masks/one.png"],
}
thoroughly = pytest.mark.parametrize(
    "thorough", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["sample", "all"]
)


class Bench:
    """One source on disk whose annotation file is replaced again and again."""

    def __init__(self, kind: str, folder: Path, name: str | None = None) -> None:
        self.folder, self.source = folder, MAKERS[kind](folder / "source")
        self.file = self.source / (name or FILES[kind])
        self.content = self.file.read_bytes()
        self.before = self._files()
        self.outcomes = {"converted": 0, "refused": 0}

    def attempt(self, content: bytes) -> None:
        self.file.write_bytes(content)
        out = self.folder / "out"
        try:
            convert(read_source(self.source), out, "folder")
            self.outcomes["converted"] += 1
            for path in sorted(out.rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
            out.rmdir()
        except UserError as error:
            self.outcomes["refused"] += 1
            assert len(str(error)) > 20
            assert not os.path.lexists(out)
        assert self._files() == self.before

    def _files(self) -> list[str]:
        return sorted(str(path) for path in self.folder.rglob("*"))


def branches(document: Any, way: tuple = ()) -> Iterator[tuple[tuple, Any]]:
    """Every value in a JSON document and the way to it."""
    yield way, document
    items = document.items() if isinstance(document, dict) else ()
    items = enumerate(document) if isinstance(document, list) else items
    for key, value in items:
        yield from branches(value, (*way, key))


def replaced(document: Any, way: tuple, value: Any) -> Any:
    if not way:
        return value
    document = copy.deepcopy(document)
    place = document
    for key in way[:-1]:
        place = place[key]
    place[way[-1]] = value
    return document


def some_nasty(value: Any, number: int) -> list[Any]:
    """All that a value of this kind may become (they pass a first look), one of each other kind, in turn."""
    own = {int: "number", str: "text", list: "list"}.get(type(value), "other")
    others = [values[number % len(values)] for kind, values in NASTY.items() if kind != own]
    return [*NASTY[own], *others]


def spread(length: int, most: int) -> list[int]:
    """Places from the first to the last, evenly; all, if there are no more."""
    return list(range(length)) if length <= most else [i * (length - 1) // (most - 1) for i in range(most)]


def png_places(content: bytes) -> list[int]:
    """Where a PNG's signature and each chunk's length, name, content and checksum begin, and the middles."""
    places, at = [0, 4], 8
    while at < len(content):
        size = int.from_bytes(content[at : at + 4], "big")
        places += [at, at + 4, *([at + 8, at + 8 + size // 2] if size else []), at + 8 + size]
        at += 12 + size
    return [*places, len(content) - 1]


@thoroughly
@pytest.mark.parametrize("kind", JSON)
def test_every_value_replaced_by_every_nasty_one(kind: str, thorough: bool, tmp_path: Path) -> None:
    bench = Bench(kind, tmp_path)
    document = json.loads(bench.content)
    seen = set()
    for way, value in branches(document):
        alike = (*("*" if isinstance(key, int) else key for key in way), type(value))
        if alike not in seen:  # one of alike places, such as the numbers of a polygon, stands for all
            for other in ALL_NASTY if thorough else some_nasty(value, len(seen)):
                bench.attempt(json.dumps(replaced(document, way, other)).encode())
        seen.add(alike)
    assert bench.outcomes["converted"] > 9 and bench.outcomes["refused"] > (200 if thorough else 60)


@thoroughly
@pytest.mark.parametrize("kind", FILES)
def test_cut_off_anywhere(kind: str, thorough: bool, tmp_path: Path) -> None:
    bench = Bench(kind, tmp_path)
    length = len(bench.content)
    for cut in spread(length, length if thorough else 25):
        bench.attempt(bench.content[:cut])
    assert bench.outcomes["refused"] > (10 if kind in JSON else 2)
    assert kind not in JSON or bench.outcomes["converted"] == 0


@thoroughly
@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, names in OTHER_FILES.items() for name in names]
)
def test_other_files_cut_off_or_overwritten(kind: str, name: str, thorough: bool, tmp_path: Path) -> None:
    bench = Bench(kind, tmp_path, name)
    content = bench.content
    sample = png_places(content) if name.endswith(".png") else spread(len(content), 25)
    for place in range(len(content)) if thorough else sample:
        bench.attempt(content[:place])
        bench.attempt(content[:place] + b"\xff" + content[place + 1 :])
    assert bench.outcomes["refused"] > 3


@thoroughly
def test_bytes_overwritten(thorough: bool, tmp_path: Path) -> None:
    bench, values = Bench("coco", tmp_path), b'"[{}9\x00\xff'
    for place in range(0, len(bench.content), 1 if thorough else 9):
        for value in values if thorough else values[place % 7 :][:1]:
            bench.attempt(bench.content[:place] + bytes([value]) + bench.content[place + 1 :])
    assert bench.outcomes["refused"] > 20


def test_images_and_masks_inside(tmp_path: Path) -> None:
    bench = Bench("labelme", tmp_path)
    document = labelme_documents()["two"]
    for value in ALL_NASTY:
        bench.attempt(json.dumps(document | {"imagePath": "none.jpg", "imageData": value}).encode())
    text = document["shapes"][0]["mask"]
    for cut in (5, 40, len(text) // 2):
        document["shapes"][0]["mask"] = text[:cut]
        bench.attempt(json.dumps(document).encode())
    assert bench.outcomes == {"converted": 0, "refused": len(ALL_NASTY) + 3}
