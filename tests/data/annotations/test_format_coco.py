"""COCO files as COCO, CVAT, Label Studio and Roboflow write them, and what can be wrong in them."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from made_sources import (
    EXPECTED,
    HEIGHT,
    WIDTH,
    coco_document,
    flat,
    make_coco,
    masks_of,
    photo,
    refusal,
    write,
)
from pycocotools import mask as coco

from segue.data.annotations import read_source
from segue.data.convert import convert


def source_with(root: Path, document: dict) -> Path:
    make_coco(root)
    write(root / "annotations" / "instances_default.json", document)
    return root


@pytest.mark.parametrize(
    "name",
    [
        "images/{}",
        "../../label-studio/data/media/upload/1/{}",
        "\\images\\{}",
        "C:\\Users\\me\\{}",
        "/data/upload/3/{}",
        "./images/{}",
        "sub/folder/{}",
    ],
)
def test_label_studio_and_cvat_paths(name: str, tmp_path: Path) -> None:
    document = coco_document()
    for image in document["images"]:
        image["file_name"] = name.format(image["file_name"])
    for key in EXPECTED:
        photo(tmp_path / "source" / "images" / f"{key}.jpg")
    write(tmp_path / "source" / "result.json", document)
    write(tmp_path / "source" / "notes.json", {"categories": [], "info": {}})
    masks = masks_of(tmp_path / "source", tmp_path / "out")
    assert all(np.array_equal(masks[key], EXPECTED[key]) for key in EXPECTED)


def test_ids_from_0_and_text_as_ids(tmp_path: Path) -> None:
    text = json.dumps(coco_document())
    for number in (1, 2, 3):
        text = text.replace(f'"category_id": {number}', f'"category_id": {number - 1}')
    document = json.loads(text)
    for category in document["categories"]:
        category["id"] -= 1
    for item in (*document["images"], *document["annotations"]):
        field = "image_id" if "image_id" in item else "id"
        item[field] = f"image {item[field]}"
    masks = masks_of(source_with(tmp_path / "source", document), tmp_path / "out")
    assert all(np.array_equal(masks[key], EXPECTED[key]) for key in EXPECTED)


def test_classes_are_in_the_order_of_their_ids_and_the_unused_stay(tmp_path: Path) -> None:
    document = coco_document()
    document["categories"] = [{"id": 9, "name": "owl"}, *reversed(document["categories"])]
    assert read_source(source_with(tmp_path, document)).classes == ("cat", "dog", "owl")


def test_all_three_kinds_of_segmentation_are_one(tmp_path: Path) -> None:
    bits = np.zeros((HEIGHT, WIDTH), dtype=np.uint8)
    bits[5:9, 3:9] = 1
    encoded = coco.encode(np.asfortranarray(bits))["counts"].decode()
    flat_bits = bits.T.ravel()
    changes = np.flatnonzero(np.diff(flat_bits)) + 1
    counts = np.diff([0, *changes, len(flat_bits)]).tolist()
    for number, shape in enumerate(
        (
            [flat(3, 5, 9, 9)],
            {"size": [HEIGHT, WIDTH], "counts": encoded},
            {"size": [HEIGHT, WIDTH], "counts": counts},
        )
    ):
        document = coco_document()
        document["annotations"][3]["segmentation"] = shape
        masks = masks_of(source_with(tmp_path / f"{number}", document), tmp_path / f"out{number}")
        assert np.array_equal(masks["two"], EXPECTED["two"])


def test_a_crowd_is_a_region_as_any_other(tmp_path: Path) -> None:
    document = coco_document()
    dog = np.zeros((HEIGHT, WIDTH), dtype=np.uint8)
    dog[3:5, 6:8] = 1
    counts = coco.encode(np.asfortranarray(dog))["counts"].decode()
    brush = {"iscrowd": 1, "segmentation": {"size": [HEIGHT, WIDTH], "counts": counts}}
    document["annotations"][0] |= brush  # as CVAT writes every mask of a brush
    mask = masks_of(source_with(tmp_path / "source", document), tmp_path / "out")["one"]
    assert np.array_equal(mask, EXPECTED["one"])


def test_hidden_regions_are_told(tmp_path: Path) -> None:
    document = coco_document()
    again = [document["annotations"][1] | {"id": number, "category_id": 2} for number in (20, 21)]
    document["annotations"] += again
    result = convert(read_source(source_with(tmp_path / "source", document)), tmp_path / "out", "voc")
    assert "2 regions are hidden" in " ".join(result.notes)


def test_the_group_of_roboflow_is_no_class(tmp_path: Path) -> None:
    document = coco_document()
    for category in document["categories"]:
        category["supercategory"] = "animals"
    document["categories"].append({"id": 0, "name": "animals", "supercategory": "none"})
    source = read_source(source_with(tmp_path / "source", document))
    assert source.classes == ("cat", "dog") and "'animals'" in source.notes[0]
    document["annotations"][0]["category_id"] = 0
    assert read_source(source_with(tmp_path / "source", document)).classes == ("animals", "cat", "dog")


def test_files_of_a_folder_give_splits_and_share_classes(tmp_path: Path) -> None:
    root = tmp_path / "source"
    for seed, split in enumerate(("train", "val", "test")):
        document = coco_document()
        document["categories"][0]["name"] = "cat" if split == "train" else "cow"
        write(root / "annotations" / f"instances_{split}2017.json", document)
        for key in EXPECTED:
            photo(root / f"{split}2017" / f"{key}.jpg", seed)
    write(root / "annotations" / "person_keypoints_val2017.json", coco_document())
    write(root / "annotations" / "captions_val2017.json", {"images": [], "annotations": [], "info": {}})
    source = read_source(root)
    assert source.classes == ("cow", "dog", "cat")
    assert {drawing.image.parent.name: drawing.split for drawing in source.drawings} == {
        f"{split}2017": split for split in ("train", "val", "test")
    }
    assert any("1 COCO file beside" in note for note in source.notes)
    result = convert(source, tmp_path / "out", "voc")
    assert result.images == {"train": 2, "val": 2, "test": 2}
    lists = tmp_path / "out" / "ImageSets" / "Segmentation"
    assert (lists / "val.txt").read_text() == "val2017_one\nval2017_two\n"
    assert len((lists / "trainval.txt").read_text().split()) == 4


def test_roboflow_has_a_file_beside_the_images_of_each_split(tmp_path: Path) -> None:
    for seed, split in enumerate(("train", "valid")):
        write(tmp_path / split / "_annotations.coco.json", coco_document())
        for key in EXPECTED:
            photo(tmp_path / split / f"{key}.jpg", seed)
    source = read_source(tmp_path)
    assert sorted((d.split, d.image.parent.name) for d in source.drawings) == [
        *[("train", "train")] * 2,
        *[("val", "valid")] * 2,
    ]


def test_boxes_alone_and_thin_polygons_are_left_out_and_told(tmp_path: Path) -> None:
    document = coco_document()
    document["annotations"][0]["segmentation"] = []
    document["annotations"] += [
        {"id": 10, "image_id": 1, "category_id": 1, "bbox": [1, 1, 2, 2]},
        {"id": 11, "image_id": 1, "category_id": 1, "segmentation": [[1, 1, 4, 4]]},
        {"id": 12, "image_id": 1, "category_id": 1, "segmentation": [[3, 3, 3, 3, 3, 3]]},
    ]
    root = source_with(tmp_path / "source", document)
    result = convert(read_source(root), tmp_path / "out", "voc")
    file = root / "annotations" / "instances_default.json"
    notes = [note for note in result.notes if str(file) in note]
    assert any("3 shapes" in note for note in notes) and any(
        "1 annotation is a box" in note for note in notes
    )
    for annotation in document["annotations"]:
        annotation |= {"segmentation": [], "bbox": [1, 1, 2, 2]}
    read = read_source(source_with(tmp_path / "boxes", document))
    text = refusal(convert, read, tmp_path / "none", "voc")
    assert "no image shows any class" in text and "7 annotations are boxes" in text


def test_pycocotools_is_asked_for_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_coco(tmp_path / "source")
    monkeypatch.setitem(sys.modules, "pycocotools", None)
    assert "pip install 'segue[coco]'" in refusal(read_source, root)


def change(path: str, value):
    """A document with one field changed, given as in annotations.0.image_id."""
    document = coco_document()
    *way, last = path.split(".")
    place = document
    for step in way:
        place = place[int(step)] if step.isdigit() else place[step]
    place[int(last) if last.isdigit() else last] = value
    return document


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("images", None, "'images' should be a list"),
        ("annotations", {}, "'annotations' should be a list"),
        ("categories", [], "there is no category of the id 2"),
        ("images.0", 5, "image 0 should be an object"),
        ("images.1.id", 1, "image 1: the id 1 is also that of"),
        ("images.0.id", True, "image 0: 'id' should be"),
        ("images.0.id", 1.0, "image 0: 'id' should be"),
        ("categories.1.id", 1, "category 1: the id 1 is also that of 'cat'"),
        ("categories.1.name", " cat ", "two categories of the name 'cat'"),
        ("categories.1.name", "a\nb", "control characters"),
        ("categories.1.name", "\ud800", "control characters"),
        ("categories.1.name", 7, "should be text"),
        ("categories.1.name", "x" * 101, "longer than 100"),
        ("annotations.2.image_id", 7, "annotation 2: there is no image of the id 7"),
        ("annotations.2.category_id", 7, "annotation 2: there is no category of the id 7"),
        ("annotations.2.category_id", None, "'category_id' should be"),
        ("annotations.1.segmentation", "x", "should be polygons or a run-length mask"),
        ("annotations.1.segmentation", [1, 2, 3], "a polygon should be a list"),
        ("annotations.1.segmentation", [[1, 2, 3, 4, 5, 6, 7]], "a polygon should be a list"),
        ("annotations.1.segmentation", [[1, 2, 3, 4, 5, True]], "one is True"),
        ("annotations.1.segmentation", [[1, 2, 3, 4, 5, "6"]], "one is '6'"),
        ("annotations.1.segmentation", [[1, 2, 3, 4, 5, 10**400]], "not finite"),
        ("annotations.2.segmentation.size", [WIDTH, HEIGHT], "10 x 12 pixels, but the image is 12 x 10"),
        ("images.0.file_name", "none.jpg", "the image 'none.jpg' is not in"),
        ("images.0.file_name", "", "'file_name' should be text"),
        ("images.0.file_name", "..", "names no image file"),
        ("images.0.file_name", "a\0b.jpg", "is not in"),
        ("images.0.file_name", "x" * 5000 + ".jpg", "is not in"),
        ("images.0.file_name", "two.jpg", "already has an annotation in"),
        ("images.0.width", 0, "'width' should be a whole number from 1"),
        ("images.0.width", 12.5, "'width' should be a whole number from 1"),
        ("images.0.height", True, "'height' should be a whole number from 1"),
        ("images.0.height", 10**9, "more than the"),
        ("images.0.height", HEIGHT + 1, "is 12 x 10 pixels, but the annotation is for 12 x 11"),
    ],
)
def test_what_is_wrong_is_named(path: str, value, message: str, tmp_path: Path) -> None:
    root = source_with(tmp_path / "source", change(path, value))
    text = refusal(lambda: convert(read_source(root), tmp_path / "out", "voc"))
    assert message in text and "instances_default.json" in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not valid JSON"),
        (b"[1, 2]", "holds a list"),
        (
            b'{"images": [], "annotations": [], "categories": {"a": ' + b"[" * 800 + b"]" * 800 + b"}}",
            "should be a list",
        ),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"a":' * 200_000, "nested too deeply"),
        ('{"images": "\u00e9"}'.encode("latin-1"), "not UTF-8"),
        (b'{"images": ' + b"9" * 5000 + b"}", "not valid JSON"),
    ],
)
def test_files_that_are_no_json(content: bytes, message: str, tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_bytes(content)
    text = refusal(read_source, file)
    assert message in text and str(file) in text


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_other_encodings_of_unicode_are_read(encoding: str, tmp_path: Path) -> None:
    root = make_coco(tmp_path / "source")
    file = root / "annotations" / "instances_default.json"
    file.write_bytes(file.read_text().replace('"cat"', '"chat beauté"').encode(encoding))
    assert read_source(root).classes == ("chat beauté", "dog")


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_is_none_spoils_one_image(number: float, tmp_path: Path) -> None:
    document = coco_document()
    bad = document["annotations"][0]
    bad["segmentation"] = [[number, 1, 9, 1, 9, 9]]
    document["images"].append({"id": 99, "file_name": "three.jpg", "width": WIDTH, "height": HEIGHT})
    root = source_with(tmp_path / "source", document)
    photo(root / "images" / "three.jpg")
    message = refusal(convert, read_source(root), tmp_path / "out", "voc")
    assert "1 of" in message and "instances_default.json" in message and str(bad["id"]) in message
    done = convert(read_source(root), tmp_path / "out", "voc", skip_bad=True)
    assert len(done.skipped) == 1 and sum(done.images.values()) == len(EXPECTED)
