"""Cityscapes polygons: groups, deleted objects, where images are, splits."""

from pathlib import Path

import numpy as np
import pytest
from made_sources import EXPECTED, corners, make_polygons, masks_of, photo, polygons_documents, refusal, write

from segue.data.annotations import read_source
from segue.data.convert import convert


def test_folders_give_split_and_image(tmp_path: Path) -> None:
    source = read_source(make_polygons(tmp_path))
    assert [(drawing.split, drawing.image.name) for drawing in source.drawings] == [
        ("train", "one_leftImg8bit.png"),
        ("val", "two_leftImg8bit.png"),
    ]
    assert source.drawings[0].image == tmp_path / "leftImg8bit" / "train" / "ulm" / "one_leftImg8bit.png"


@pytest.mark.parametrize("ending", ["_gtFine_polygons", "_gtCoarse_polygons", "_polygons", ""])
@pytest.mark.parametrize("image", ["{}.jpg", "{}_leftImg8bit.png"])
def test_images_beside_the_file(ending: str, image: str, tmp_path: Path) -> None:
    for seed, (key, document) in enumerate(polygons_documents().items()):
        write(tmp_path / "source" / f"{key}{ending}.json", document)
        photo(tmp_path / "source" / image.format(key), seed)
    masks = masks_of(tmp_path / "source", tmp_path / "out")
    assert [mask.tolist() for mask in masks.values()] == [mask.tolist() for mask in EXPECTED.values()]


def test_a_folder_of_images_elsewhere(tmp_path: Path) -> None:
    for seed, (key, document) in enumerate(polygons_documents().items()):
        write(tmp_path / "source" / f"{key}_polygons.json", document)
        photo(tmp_path / "pictures" / "deep" / f"{key}.png", seed)
    assert "its image is missing" in refusal(read_source, tmp_path / "source")
    masks = masks_of(tmp_path / "source", tmp_path / "out", tmp_path / "pictures")
    assert np.array_equal(masks["one"], EXPECTED["one"])


def test_labels(tmp_path: Path) -> None:
    labels = ("cargroup", "car", "age group", "group", "out of roi", "license plate")
    document = polygons_documents()["one"] | {
        "objects": [{"label": label, "polygon": corners(0, 0, 4, 4)} for label in labels]
        + [{"label": "gone", "polygon": corners(0, 0, 4, 4), "deleted": 1}]
    }
    write(tmp_path / "one_polygons.json", document)
    photo(tmp_path / "one.png")
    assert read_source(tmp_path).classes == ("age group", "car", "group", "license plate")


def test_images_without_a_file_are_told(tmp_path: Path) -> None:
    root = make_polygons(tmp_path)
    for name in ("new_leftImg8bit.png", "broken_leftImg8bit.png"):
        photo(root / "leftImg8bit" / "train" / "ulm" / name)
    write(root / "gtFine" / "train" / "ulm" / "broken_gtFine_polygons.json", "{")
    note = "1 image without an annotation file was left out, first new_leftImg8bit.png."
    assert read_source(root).notes == (note,)


def test_coarse_files_yield_to_fine_ones(tmp_path: Path) -> None:
    root = make_polygons(tmp_path)
    write(root / "gtCoarse" / "train" / "ulm" / "one_gtCoarse_polygons.json", polygons_documents()["one"])
    source = read_source(root)
    assert len(source.drawings) == 2 and "1 file of gtCoarse was" in source.notes[0]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("imgWidth", 13, "is 12 x 10 pixels, but the annotation is for 13 x 10"),
        ("imgWidth", -1, "'imgWidth' should be a whole number from 1"),
        ("objects", None, "'objects' should be a list"),
        ("objects", ["x"], "object 0 should be an object"),
        ("objects", [{"label": "cat", "polygon": [1, 2, 3]}], "points should be a list"),
        ("objects", [{"label": "cat", "polygon": [[1, 2], [3, "4"], [5, 6]]}], "one is '4'"),
    ],
)
def test_what_is_wrong_is_named(field: str, value, message: str, tmp_path: Path) -> None:
    root = make_polygons(tmp_path / "source")
    file = root / "gtFine" / "train" / "ulm" / "one_gtFine_polygons.json"
    write(file, polygons_documents()["one"] | {field: value})
    text = refusal(lambda: convert(read_source(root), tmp_path / "out", "voc"))
    assert message in text and str(file) in text
