"""Predictions as annotations: what `segue data convert` reads back is the same masks, in every format."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from deploy.predicting import Brightness, photo, read_ids, truth
from PIL import Image

from segue.core.errors import UserError
from segue.data.annotations import read_source
from segue.data.annotations.rle import runs_of
from segue.data.convert import convert
from segue.deploy.annotate import annotate, check_target, common_folder
from segue.deploy.inputs import find_inputs
from segue.deploy.predict import Settings, predict

CLASSES = ("background", "grey", "white")


def make_images(root: Path) -> dict[str, np.ndarray]:
    """Images in two folders, one stored lying on its side, one without any class but background."""
    (root / "sub dir").mkdir(parents=True)
    photos = {"a": photo(30, 40, 0), "sub dir/b c": photo(41, 33, 1), "sub dir/a": photo(20, 50, 2)}
    photos["black"] = np.zeros((25, 35, 3), dtype=np.uint8)
    for name, pixels in photos.items():
        Image.fromarray(pixels).save(root / f"{name}.png")
    turned = photo(30, 44, 5)
    stored = Image.fromarray(np.rot90(turned).copy())
    exif = stored.getexif()
    exif[0x0112] = 6
    stored.save(root / "turned.png", exif=exif)
    return photos | {"turned": turned}


@pytest.mark.parametrize("target", ["coco", "labelme", "labelstudio", "voc"])
def test_round_trip_gives_the_same_masks(target, tmp_path):
    photos = make_images(tmp_path / "photos")
    out, mine = tmp_path / "out", tmp_path / "mine"
    inputs = find_inputs([str(tmp_path / "photos")], out)
    done = predict(Brightness(), inputs, out, Settings())
    check_target(target, inputs, CLASSES)
    folder, skipped = annotate(target, out, inputs, done.records, CLASSES)
    assert skipped == [] and folder == out / target and common_folder(inputs) == tmp_path / "photos"
    source = read_source(folder, tmp_path / "photos")
    assert source.classes == CLASSES[1:]
    converted = convert(source, mine, "folder")
    assert sum(converted.images.values()) == len(photos)
    found = {path.stem: read_ids(path) for path in (mine / "masks").iterdir()}
    expected = sorted(truth(pixels).tobytes() for pixels in photos.values())
    assert sorted(ids.astype(np.int64).tobytes() for ids in found.values()) == expected
    assert np.array_equal(found["turned"], truth(photos["turned"]))


def test_coco_holds_all_classes_and_right_boxes(tmp_path):
    make_images(tmp_path / "photos")
    inputs = find_inputs([str(tmp_path / "photos")], tmp_path / "out")
    done = predict(Brightness(), inputs, tmp_path / "out", Settings())
    folder, _ = annotate("coco", tmp_path / "out", inputs, done.records, CLASSES)
    document = json.loads((folder / "instances.json").read_text())
    assert [(one["id"], one["name"]) for one in document["categories"]] == [(1, "grey"), (2, "white")]
    assert {one["file_name"] for one in document["images"]} == {
        *("a.png", "black.png", "turned.png", "sub dir/a.png", "sub dir/b c.png")
    }
    sizes = {one["id"]: (one["height"], one["width"]) for one in document["images"]}
    for one in document["annotations"]:
        _, top, wide, high = one["bbox"]
        assert one["area"] <= wide * high and top + high <= sizes[one["image_id"]][0]
        assert one["segmentation"]["size"] == list(sizes[one["image_id"]])
        assert sum(one["segmentation"]["counts"][1::2]) == one["area"]


def test_run_lengths_begin_outside():
    region = np.array([[True, False], [True, True], [False, True]])
    assert runs_of(region).counts.tolist() == [0, 2, 2, 2]
    assert runs_of(np.zeros((2, 2), dtype=bool)).counts.tolist() == [4]
    assert runs_of(np.ones((2, 2), dtype=bool)).counts.tolist() == [0, 4]


def test_what_cannot_be_annotated_is_said_first(tmp_path):
    make_images(tmp_path)
    Image.fromarray(photo()).save(tmp_path / "a.bmp")
    inputs = find_inputs([str(tmp_path)], tmp_path / "out")
    with pytest.raises(UserError, match="would be one mask"):
        check_target("voc", inputs, CLASSES)
    check_target("coco", inputs, CLASSES)
    with pytest.raises(UserError, match=r"labelmap\.txt"):
        check_target("voc", inputs, ("background", "a:b"))
    with pytest.raises(UserError, match="stdin is none"):
        check_target("coco", find_inputs(["-"], tmp_path / "out"), CLASSES)
