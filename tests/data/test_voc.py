"""PASCAL VOC 2012 from its folder: roots, lists, SBD's masks."""

import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from segue.core.errors import UserError
from segue.core.plugins import find
from segue.data.datasets.voc import Config, Voc, read_list


def opened(root: Path, split: str = "train", **options: str) -> Voc:
    return Voc(Config(root=str(root), **options), split)


def refusal(*arguments, **options) -> str:
    with pytest.raises(UserError) as caught:
        opened(*arguments, **options)
    return str(caught.value)


def test_found_by_its_name() -> None:
    assert find("dataset", "voc") is Voc


def test_classes() -> None:
    names = Voc.classes.names
    assert list(names) == list(range(1, 21)) and list(names.values()) == sorted(names.values())
    assert (names[1], names[15], names[20]) == ("aeroplane", "person", "tvmonitor")
    assert Voc.classes.background == 0 and Voc.classes.void == (255,)


# Root


@pytest.mark.parametrize("level", ["VOCdevkit/VOC2012", "VOCdevkit", ""])
def test_root_at_three_levels(voc, tmp_path: Path, level: str) -> None:
    dataset = opened(tmp_path / level)
    assert len(dataset) == 4 and dataset.read(0).key == "2007_1"


def test_root_in_the_home_folder(voc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert len(opened(Path("~/VOCdevkit"))) == 4


def test_bad_roots(voc, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"data\.root=FOLDER"):
        Voc(Config(), "train")
    assert f"{tmp_path / 'nowhere'} does not exist" in refusal(tmp_path / "nowhere")
    empty = tmp_path / "empty"
    empty.mkdir()
    message = refusal(empty)
    assert f"{empty} is not a VOC 2012 folder" in message and "JPEGImages" in message


# Content


def test_splits(voc) -> None:
    assert opened(voc.root).keys == ("2007_1", "2007_2", "2007_3", "2007_4")
    assert opened(voc.root, "test").keys == ("2008_1", "2008_2", "2008_3")


def test_sample_is_the_picture_with_its_mask(voc) -> None:
    sample = opened(voc.root).read(2)
    assert sample.key == "2007_3"
    assert sample.image.shape == (30, 40, 3) and sample.image.dtype == np.uint8
    assert np.array_equal(sample.mask, voc.mask(15))
    inside = sample.image[8:22, 12:28]
    assert abs(inside.mean() - 150) < 3  # the grey of class 15


def test_check_gives_the_ids_of_the_mask(voc) -> None:
    dataset = opened(voc.root, "test")
    for index in range(3):
        present = np.flatnonzero(dataset.check(index).pixels).tolist()
        assert present == np.unique(dataset.read(index).mask).tolist()


def test_bad_files_are_named(voc) -> None:
    dataset = opened(voc.root)
    voc.image_path("2007_2").unlink()
    with pytest.raises(UserError, match=re.escape(f"{voc.image_path('2007_2')} is missing")):
        dataset.read(1)
    with pytest.raises(UserError, match=re.escape(f"{voc.image_path('2007_2')} is missing")):
        dataset.check(1)


# Lists


def test_missing_list(voc) -> None:
    path = voc.root / "ImageSets" / "Segmentation" / "val.txt"
    path.unlink()
    assert refusal(voc.root, "test") == f"The image list {path} cannot be read: No such file or directory."
    assert "trainval.txt cannot be read" in refusal(voc.root, train_list="trainval")


@pytest.mark.parametrize("lines", [[], ["", "   "]])
def test_empty_list(voc, lines: list[str]) -> None:
    path = voc.write_list("train", lines)
    assert refusal(voc.root) == f"The image list {path} is empty."


def test_doubled_name(voc) -> None:
    path = voc.write_list("train", ["2007_1", "2007_3", "2007_2", "2007_3"])
    assert refusal(voc.root) == f"The image list {path} names '2007_3' twice."


def test_list_that_is_no_text(voc) -> None:
    path = voc.root / "ImageSets" / "Segmentation" / "train.txt"
    path.write_bytes(b"\xff\xfe\x00\x81")
    assert refusal(voc.root) == f"The image list {path} is not a text file in UTF-8."


@pytest.mark.parametrize(
    "line",
    [
        "2007_1",
        "  2007_1  ",
        "2007_1 1",
        "/JPEGImages/2007_1.jpg /SegmentationClassAug/2007_1.png",
        "JPEGImages/2007_1.jpg SegmentationClassAug/2007_1.png",
        "../../elsewhere/2007_1.jpg",
    ],
)
def test_every_style_of_line_names_a_key(voc, line: str) -> None:
    assert read_list(voc.write_list("any", ["", line, ""])) == ("2007_1",)


def test_windows_line_ends(voc) -> None:
    path = voc.root / "ImageSets" / "Segmentation" / "train.txt"
    path.write_bytes(b"2007_1\r\n2007_4\r\n")
    assert opened(voc.root).keys == ("2007_1", "2007_4")


# SBD


@pytest.fixture
def augmented(voc):
    """SBD's masks for one image of VOC, relabelled, and one of its own."""
    voc.add("2007_1", 7, "SegmentationClassAug")
    voc.add("2010_1", 12, "SegmentationClassAug")
    voc.write_list(
        "train_aug",
        [f"/JPEGImages/{key}.jpg /SegmentationClassAug/{key}.png" for key in ("2007_1", "2010_1")],
    )
    return voc


def test_augmented_list_is_used_when_it_is_there(augmented) -> None:
    dataset = opened(augmented.root)
    assert dataset.keys == ("2007_1", "2010_1")
    assert np.array_equal(dataset.read(0).mask, augmented.mask(7))  # SBD's mask, not VOC's
    assert np.flatnonzero(dataset.check(1).pixels).tolist() == [0, 12, 255]


def test_testing_never_uses_sbd(augmented) -> None:
    augmented.add("2008_1", 2, "SegmentationClassAug")
    dataset = opened(augmented.root, "test")
    assert len(dataset) == 3 and np.array_equal(dataset.read(0).mask, augmented.mask(3))


def test_plain_list_can_be_asked_for(augmented) -> None:
    dataset = opened(augmented.root, train_list="train")
    assert len(dataset) == 4 and np.array_equal(dataset.read(0).mask, augmented.mask(1))


def test_list_without_masks_is_not_taken_by_itself(voc) -> None:
    voc.write_list("train_aug", ["2007_1"])
    assert len(opened(voc.root)) == 4


# Fingerprint


def test_fingerprint_is_stable(voc, tmp_path: Path) -> None:
    assert opened(voc.root).fingerprint() == opened(tmp_path).fingerprint()
    assert opened(voc.root).fingerprint() != opened(voc.root, "test").fingerprint()


@pytest.mark.parametrize("change", ["mask", "image", "time", "gone", "list", "order"])
def test_fingerprint_follows_the_files(voc, change: str) -> None:
    before = opened(voc.root).fingerprint()
    if change == "mask":
        voc.mask_path("2007_2").write_bytes(b"longer than before" * 100)
    elif change == "image":
        voc.image_path("2007_2").write_bytes(b"other")
    elif change == "time":
        os.utime(voc.mask_path("2007_2"), ns=(1, 1))
    elif change == "gone":
        voc.mask_path("2007_2").unlink()
    elif change == "list":
        voc.write_list("train", ["2007_1", "2007_2", "2007_3"])
    else:
        voc.write_list("train", ["2007_2", "2007_1", "2007_3", "2007_4"])
    assert opened(voc.root).fingerprint() != before


def test_fingerprint_tells_one_mask_folder_from_another(augmented) -> None:
    """Name, size and time of a file may be the same in both."""
    shutil.copy2(augmented.mask_path("2007_1"), augmented.mask_path("2007_1", "SegmentationClassAug"))
    augmented.write_list("one", ["2007_1"])
    augmented.write_list("train_aug", ["2007_1"])
    sbd, plain = opened(augmented.root), opened(augmented.root, train_list="one")
    assert sbd.keys == plain.keys and sbd.fingerprint() != plain.fingerprint()
