"""Masks as files: CVAT's colours, values and names, lists, and what can be wrong with them."""

import os
from pathlib import Path

import numpy as np
import pytest
from made_sources import EXPECTED, HEIGHT, WIDTH, make_pairs, make_voc, masks_of, photo, refusal, write
from PIL import Image

from segue.data.annotations import read_source
from segue.data.convert import convert


def save(path: Path, pixels: np.ndarray, mode: str | None = None) -> None:
    image = Image.fromarray(pixels)
    (image.convert(mode) if mode else image).save(path)


def problem(root: Path, out: Path) -> str:
    return refusal(lambda: convert(read_source(root), out, "voc"))


def test_a_colour_without_name_is_told_with_its_place(tmp_path: Path) -> None:
    root = make_voc(tmp_path / "source")
    path = root / "SegmentationClass" / "one.png"
    pixels = np.asarray(Image.open(path)).copy()
    pixels[7, 9] = 128, 64, 1
    save(path, pixels)
    text = problem(root, tmp_path / "out")
    assert f"{path} has the colour 128,64,1 at x 9, y 7, which {root / 'labelmap.txt'} does not name" in text


@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_colours_count_whatever_the_mode(mode: str, tmp_path: Path) -> None:
    root = make_voc(tmp_path / "source")
    pixels = np.asarray(Image.open(root / "SegmentationClass" / "one.png"))
    save(root / "SegmentationClass" / "one.png", pixels, mode)
    masks = masks_of(root, tmp_path / "out")
    assert all(np.array_equal(masks[key], EXPECTED[key]) for key in EXPECTED)


def test_labelmap_may_name_void_and_the_void_colour(tmp_path: Path) -> None:
    root = make_voc(tmp_path / "source")
    write(
        root / "labelmap.txt",
        "bird:0,0,0::\n\ncat:10,20,30:ear,tail:run\nignore:1,2,3::\nowl:224,224,192::\n",
    )
    masks = masks_of(root, tmp_path / "out")
    assert masks["one"][0, 0] == 1 and masks["one"][1, 2] == 2 and masks["one"][3, 6] == 255
    assert masks["two"][0, 0] == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cat", "line 1: 'cat' should be name:red,green,blue::"),
        ("cat:1,2::", "should be name:red,green,blue::"),
        ("cat:1,2,256::", "colours up to 255"),
        ("cat:1,2,-3::", "should be name:red,green,blue::"),
        ("cat:1,2,3::\ncat:1,2,4::", "line 2: the name cat or its colour stands there twice"),
        ("cat:1,2,3::\ndog:1,2,3::", "line 2: the name dog or its colour stands there twice"),
        (":1,2,3::", "a class name is empty"),
        ("# nothing", "has no class"),
        ("background:0,0,0::", "has no class"),
    ],
)
def test_bad_labelmaps(text: str, message: str, tmp_path: Path) -> None:
    root = make_voc(tmp_path)
    write(root / "labelmap.txt", text)
    complaint = refusal(read_source, root)
    assert message in complaint and str(root / "labelmap.txt") in complaint


def test_a_value_without_name_is_told_with_its_place(tmp_path: Path) -> None:
    root = make_pairs(tmp_path / "source")
    mask = EXPECTED["one"].copy()
    mask[6, 5] = 3
    save(root / "masks" / "one.png", mask)
    text = problem(root, tmp_path / "out")
    assert f"{root / 'masks' / 'one.png'} holds the value 3 at x 5, y 6" in text and "classes.txt" in text


def test_numbers_before_names(tmp_path: Path) -> None:
    root = make_pairs(tmp_path / "source")
    write(root / "classes.txt", "7 void\n2 cat\n0 background\n1 dog\n")
    mask = EXPECTED["one"].copy()
    mask[9, 9] = 7
    save(root / "masks" / "one.png", mask)
    masks = masks_of(root, tmp_path / "out")
    assert read_source(root).classes == ("dog", "cat")
    assert np.array_equal(masks["two"] == 255, EXPECTED["two"] == 255)
    assert masks["one"][9, 9] == 255 and masks["one"][1, 2] == 1 and masks["one"][3, 6] == 2


def test_masks_of_another_mode_or_size_or_missing(tmp_path: Path) -> None:
    root = make_pairs(tmp_path / "source")
    path = root / "masks" / "one.png"
    save(path, EXPECTED["one"], "RGB")
    assert f"{path} is a mask of mode RGB" in problem(root, tmp_path / "out")
    save(path, np.zeros((HEIGHT, WIDTH + 1), dtype=np.uint8))
    assert "12 x 10 pixels" in problem(root, tmp_path / "out")
    path.unlink()
    write(root / "train.txt", "one\n")
    write(root / "val.txt", "two\n")
    assert f"{root / 'masks'} has no mask of the name 'one'" in problem(root, tmp_path / "out")
    (root / "images" / "two.jpg").unlink()
    assert f"{root / 'images'} has no image of the name 'two'" in problem(root, tmp_path / "out")


def test_names_of_classes_are_needed_once(tmp_path: Path) -> None:
    root = make_pairs(tmp_path)
    write(root / "labelmap.txt", "cat:1,1,1::")
    assert "both labelmap.txt and classes.txt" in refusal(read_source, root)
    for name in ("labelmap.txt", "classes.txt"):
        (root / name).unlink()
    assert "no class names" in refusal(read_source, root)


def test_splits_from_lists_or_folders(tmp_path: Path) -> None:
    root = make_pairs(tmp_path / "lists")
    write(root / "readme.txt", "anything")
    photo(root / "images" / "three.jpg")
    source = read_source(root)
    assert {drawing.split for drawing in source.drawings} == {None}
    assert source.notes == ("1 image has no mask and was left out, first three.",)
    write(root / "train.txt", "two.jpg\n")
    write(root / "val.txt", "one\n")
    assert {d.name: d.split for d in read_source(root).drawings} == {"two.jpg": "train", "one.jpg": "val"}
    (root / "val.txt").unlink()
    assert read_source(root).notes == ("1 mask is in no list and was left out, first one.",)
    write(root / "val.txt", "two\n")
    assert "also in another list" in refusal(read_source, root)
    root = make_pairs(tmp_path / "folders")
    for key, split in (("one", "train"), ("two", "val")):
        for place, suffix in (("images", "jpg"), ("masks", "png")):
            (root / place / split).mkdir()
            (root / place / f"{key}.{suffix}").rename(root / place / split / f"{key}.{suffix}")
    assert {d.name: d.split for d in read_source(root).drawings} == {
        "train/one.jpg": "train",
        "val/two.jpg": "val",
    }


def test_cvat_lists_of_one_subset_with_folders_and_spaces(tmp_path: Path) -> None:
    root = make_voc(tmp_path)
    for path in (root / "ImageSets" / "Segmentation").iterdir():
        path.unlink()
    for place, suffix in (("JPEGImages", "jpg"), ("SegmentationClass", "png")):
        (root / place / "sub").mkdir()
        (root / place / f"one.{suffix}").rename(root / place / "sub" / f"a photo.{suffix}")
    write(root / "ImageSets" / "Segmentation" / "default.txt", '"sub/a photo"\ntwo\n')
    assert [(d.name, d.split, d.problem) for d in read_source(root).drawings] == [
        ("sub/a photo.jpg", None, ""),
        ("two.jpg", None, ""),
    ]


def test_cvat_images_of_no_subset_beside_a_subset(tmp_path: Path) -> None:
    root = make_voc(tmp_path)
    lists = root / "ImageSets" / "Segmentation"
    (lists / "train.txt").rename(lists / "Train.txt")
    (lists / "val.txt").rename(lists / "default.txt")
    source = read_source(root)
    assert {d.name: d.split for d in source.drawings} == {"one.jpg": "train", "two.jpg": None}
    assert source.notes == ()


def test_images_elsewhere(tmp_path: Path) -> None:
    root = make_voc(tmp_path / "source")
    (root / "JPEGImages").rename(tmp_path / "pictures")
    text = refusal(read_source, root)
    assert "has no folder JPEGImages" in text and "with --images FOLDER" in text
    masks = masks_of(root, tmp_path / "out", tmp_path / "pictures")
    assert np.array_equal(masks["one"], EXPECTED["one"])


@pytest.mark.parametrize("place", ["images/one.jpg", "masks/one.png"])
def test_links_that_lead_out_are_refused(place: str, tmp_path: Path) -> None:
    root = make_pairs(tmp_path / "source")
    secret = (root / place).rename(tmp_path / Path(place).name)
    os.symlink(secret, root / place)
    text = problem(root, tmp_path / "out")
    assert f"{root / place} is a link to a place outside" in text
