"""Label Studio's JSON: brush masks bit by bit, polygons in percent, and what can be wrong in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from segue.core.errors import UserError
from segue.data.annotations import read_source
from segue.data.annotations.brush import pack, unpack
from segue.data.convert import convert

MASK = np.array(
    [
        [0, 1, 1, 1, 0, 0, 0],
        [0, 0, 0, 0, 1, 0, 1],
        [0, 1, 0, 0, 1, 1, 1],
        [1, 0, 0, 0, 1, 0, 0],
        [0, 0, 0, 1, 1, 0, 0],
    ],
    dtype=bool,
)
# fmt: off
THEIRS = [
    0, 0, 0, 140, 57, 27, 252, 96, 22, 255, 240, 216, 4, 127, 241, 128, 71, 255, 24, 4, 127, 243, 128, 95,
    255, 182, 1, 31, 254, 19, 0, 159, 254, 112, 0,
]
# fmt: on
"""the same mask, packed by label_studio_sdk 2.1.2"""


def brush(mask: np.ndarray, name: str, **other: Any) -> dict[str, Any]:
    value = {"format": "rle", "rle": pack(mask), "brushlabels": [name]}
    size = {"original_width": mask.shape[1], "original_height": mask.shape[0]}
    return {"type": "brushlabels", "value": value, **size, **other}


def task(image: str, *results: dict[str, Any], field: str = "annotations") -> dict[str, Any]:
    return {"id": 1, "data": {"image": image}, field: [{"result": list(results)}]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "photos" / "sub dir").mkdir(parents=True)
    for name in ("a", "sub dir/b c"):
        Image.new("RGB", (7, 5)).save(tmp_path / "photos" / f"{name}.png")
    return tmp_path


def write(folder: Path, tasks: object) -> Path:
    file = folder / "project.json"
    file.write_text(json.dumps(tasks))
    return file


def refusal(tasks: object, folder: Path) -> str:
    with pytest.raises(UserError) as error:
        read_source(write(folder, tasks), folder / "photos")
    return str(error.value)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 1.0])
@pytest.mark.parametrize("size", [(1, 1), (3, 400), (300, 200)])
def test_brush_masks_come_back(size, share):
    mask = np.random.default_rng(0).random(size) < share
    packed = pack(mask)
    assert all(type(byte) is int and 0 <= byte <= 255 for byte in packed)
    assert np.array_equal(unpack(packed, size, "x"), mask)


def test_brush_masks_of_label_studio_are_read():
    """With numbers that are repeated and numbers one by one, and lengths of another choice than ours."""
    assert np.array_equal(unpack(THEIRS, MASK.shape, "x"), MASK)
    one_by_one = "".join(
        f"000{15:04b}" + "".join(f"{255 * int(pixel):08b}" * 4 for pixel in row)
        for row in MASK.reshape(-1)[:32].reshape(8, 4)
    )
    head = f"{4 * 32:032b}{7:05b}" + f"{3:04b}" * 4
    bits = head + one_by_one
    packed = [int(bits[start : start + 8].ljust(8, "0"), 2) for start in range(0, len(bits), 8)]
    assert np.array_equal(unpack(packed, (8, 4), "x"), MASK.reshape(-1)[:32].reshape(8, 4))


@pytest.mark.parametrize(
    "packed",
    [[], THEIRS[:3], THEIRS[:20], [*THEIRS[:-4]], [300], [-1], ["a"], [[1]], None, "text", 3, [1.5], {"a": 1},
     [0, 0, 0, 140, 255, *THEIRS[5:]], [255] * 40],
)  # fmt: skip
def test_damaged_brush_masks_are_refused(packed):
    with pytest.raises(UserError, match="7 x 5"):
        unpack(packed, (5, 7), "x")


def test_drawn_regions_become_masks(folder):
    second = np.zeros_like(MASK)
    second[2:, 4:] = True
    square = {"type": "polygonlabels", "original_width": 7, "original_height": 5}
    square["value"] = {"points": [[0, 0], [40, 0], [40, 50], [0, 50]], "polygonlabels": ["box"]}
    tasks = [
        task("/data/upload/3/0a1b2c3d-a.png", brush(MASK, "cat"), brush(second, "dog")),
        task("/data/local-files/?d=photos/sub%20dir/b%20c.png", square, {"type": "choices", "value": {}}),
    ]
    source = read_source(write(folder, tasks), folder / "photos")
    assert source.format == "labelstudio" and source.classes == ("box", "cat", "dog")
    convert(source, folder / "mine", "folder")
    found = {path.stem: np.asarray(Image.open(path)) for path in (folder / "mine" / "masks").iterdir()}
    assert np.array_equal(found["a"], np.where(second, 3, np.where(MASK, 2, 0)))
    other = next(ids for name, ids in found.items() if name != "a")
    assert set(np.unique(other)) == {0, 1} and other[0, 0] == 1 and other[4, 6] == 0


def test_what_people_drew_counts_and_predictions_stand_in(folder):
    drawn, guess = brush(MASK, "cat"), brush(~MASK, "dog")
    both = task("a.png", drawn)
    both["annotations"].append({"result": [guess], "was_cancelled": True})
    both["predictions"] = [{"result": [guess]}, 7]
    guessed = task("sub dir/b c.png", guess, field="predictions")
    untouched = {"data": {"image": "a.png"}, "annotations": [], "predictions": []}
    source = read_source(write(folder, [both, guessed, untouched]), folder / "photos")
    assert [[region.name for region in one.regions] for one in source.drawings] == [["cat"], ["dog"]]
    notes = " ".join(source.notes)
    assert "1 task without annotations" in notes and "1 image has a prediction alone" in notes


@pytest.mark.parametrize(
    ("region", "message"),
    [
        ({"type": "ellipselabels", "value": {}}, "ellipselabels"),
        ({**brush(MASK, "cat"), "original_width": 8}, "no mask of 8 x 5"),
        ({**brush(MASK, "cat"), "original_height": "x"}, "original_height"),
        ({**brush(MASK, "cat"), "value": 3}, "should be an object"),
        ({**brush(MASK, "cat"), "value": {"brushlabels": ["a", "b"], "rle": []}}, "one label"),
        (5, "should be an object"),
    ],
)
def test_wrong_regions_are_named(region, message, folder):
    text = refusal([task("a.png", region)], folder)
    assert message in text and "task 0, region 0" in text and "project.json" in text


@pytest.mark.parametrize(
    "image", ["../../etc/passwd", "/etc/passwd", "file:///etc/passwd", "", "http://[x/a.png"]
)
def test_images_elsewhere_are_not_read(image, folder):
    assert "task 0" in refusal([task(image, brush(MASK, "cat"))], folder)


def test_an_image_without_a_region_is_all_background(folder):
    source = read_source(
        write(folder, [task("a.png", brush(MASK, "cat")), task("sub dir/b c.png")]), folder / "photos"
    )
    convert(source, folder / "mine", "folder")
    sums = sorted(int(np.asarray(Image.open(path)).sum()) for path in (folder / "mine" / "masks").iterdir())
    assert sums == [0, int(MASK.sum())]
