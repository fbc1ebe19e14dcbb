"""The user's own folder: its layouts, its splits, and what is said when it cannot be read."""

import os
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from own_folder import SIZE, write_folder, write_pair

from segue.core.errors import UserError
from segue.core.scenario import make_scenario
from segue.data.datasets.folder import Config, Folder
from segue.data.index import class_index
from segue.data.layout import held_out

NAMES = "background\ncat\ndog\n"


def opened(root: Path, split="train", **options) -> Folder:
    return Folder(Config(str(root), **options), split)


def refusal(root: Path | None, split="train", **options) -> str:
    with pytest.raises(UserError) as error:
        Folder(Config(None if root is None else str(root), **options), split)
    return str(error.value)


@pytest.fixture
def many(tmp_path) -> Path:
    return write_folder(tmp_path, {f"photo {i}": [0, 1 + i % 2] for i in range(40)}, NAMES)


def test_without_lists_a_share_is_held_out(many) -> None:
    train, test = set(opened(many).keys), set(opened(many, "test").keys)
    assert train | test == {f"photo {i}" for i in range(40)} and not train & test
    assert 3 <= len(test) <= 13
    assert len(opened(many, "test", test_share=0.5)) > len(test)


def test_an_image_stays_in_its_split_when_others_come() -> None:
    few, more = [f"image{i}" for i in range(50)], [f"image{i}" for i in range(200)]
    assert set(held_out(few, 0.2, "test")) == set(held_out(more, 0.2, "test")) & set(few)
    for count in (2, 3, 5):
        both = [held_out(few[:count], 0.01, split) for split in ("train", "test")]
        assert all(both) and sorted(sum(both, ())) == few[:count]


def test_sample(many) -> None:
    data = opened(many)
    sample = data.read(0)
    assert sample.image.shape == (SIZE[1], SIZE[0], 3) and sample.mask.shape == SIZE[::-1]
    assert set(np.unique(sample.mask)) == set(np.flatnonzero(class_index(data)[0]))
    assert data.classes.names == {1: "cat", 2: "dog"} and data.classes.dataset == "folder"


def test_lists(many) -> None:
    (many / "train.txt").write_text("photo 1\nphoto 3.png\n\n", encoding="utf-8")
    (many / "holdout.txt").write_text("photo 2\n")
    assert opened(many).keys == ("photo 1", "photo 3")
    assert opened(many, "test", test="holdout").keys == ("photo 2",)
    assert "has no subset 'val'" in refusal(many, "test") and "train" in refusal(many, "test")


def test_parts_in_folders(tmp_path) -> None:
    write_folder(tmp_path, {"train/a": [1], "train/deep/b": [2], "val/c": [1, 2]}, NAMES)
    assert opened(tmp_path).keys == ("a", "deep/b")
    assert opened(tmp_path, "test").keys == ("c",)
    assert "no subset 'dev'" in refusal(tmp_path, "test", test="dev")
    (tmp_path / "images" / "dev").mkdir()
    assert refusal(tmp_path, "test", test="dev").startswith(f"{tmp_path / 'masks' / 'dev'} is missing")


def test_voc_like(tmp_path) -> None:
    for key, ids in {"a": [0, 1], "b": [2]}.items():
        write_pair(tmp_path / "JPEGImages" / f"{key}.bmp", tmp_path / "SegmentationClass" / f"{key}.png", ids)
    (tmp_path / "classes.txt").write_text(NAMES)
    lists = tmp_path / "ImageSets" / "Segmentation"
    lists.mkdir(parents=True)
    (lists / "train.txt").write_text("a\n")
    (lists / "val.txt").write_text("b\n")
    assert opened(tmp_path).keys == ("a",) and opened(tmp_path, "test").keys == ("b",)
    assert opened(tmp_path, "test").read(0).mask.max() == 2


def test_camvid_like_ids_start_at_zero_without_background(tmp_path) -> None:
    for part, images in {"train": {"a": [0, 1], "b": [1, 2, 255]}, "val": {"c": [0, 1, 2]}}.items():
        for key, ids in images.items():
            write_pair(tmp_path / part / f"{key}.png", tmp_path / f"{part}annot" / f"{key}.png", ids)
    (tmp_path / "classes.txt").write_text("sky\nroad\ncar\n")
    train = opened(tmp_path)
    assert train.keys == ("a", "b") and train.classes.background is None
    scenario = make_scenario(train.classes, "2-1")
    index = class_index(train)
    assert [scenario.select(step, index).tolist() for step in scenario] == [[0, 1], [1]]
    table = scenario.label_table(scenario[1])
    assert table[[0, 1, 2, 255]].tolist() == [0, 0, 3, 0]
    assert scenario.label_table(scenario[1], "test")[[0, 1, 2, 255]].tolist() == [1, 2, 3, 255]


def test_mask_names_may_have_a_suffix(tmp_path) -> None:
    write_pair(tmp_path / "images" / "a.png", tmp_path / "labels" / "a_P.png", [1])
    write_pair(tmp_path / "images" / "b.png", tmp_path / "labels" / "b_P.png", [1])
    (tmp_path / "classes.txt").write_text(NAMES)
    data = opened(tmp_path, mask_suffix="_P")
    assert data.read(0).mask.max() == 1
    assert "they end in '_P': add data.mask_suffix=_P" in refusal(tmp_path)
    assert "they end in '_P'" in refusal(tmp_path, mask_suffix="_mask")


def test_composed_and_decomposed_names_are_one(tmp_path) -> None:
    name = "caf\u00e9"
    write_pair(
        tmp_path / "images" / f"{unicodedata.normalize('NFD', name)}.png",
        tmp_path / "masks" / f"{unicodedata.normalize('NFC', name)}.png",
        [1],
    )
    (tmp_path / "classes.txt").write_text(NAMES)
    (tmp_path / "train.txt").write_text(f"{name}\n", encoding="utf-8")
    assert opened(tmp_path).read(0).key == name


def test_what_is_not_an_image_does_not_count(many) -> None:
    for name in (".DS_Store", "Thumbs.db", ".hidden.png", "notes.txt"):
        (many / "images" / name).write_bytes(b"x")
    assert len(opened(many)) + len(opened(many, "test")) == 40


def test_every_mask_is_known(many) -> None:
    write_pair(many / "x.png", many / "masks" / "orphan.png", [1])
    assert many / "masks" / "orphan.png" in set(opened(many).mask_files())


@pytest.mark.parametrize("line", ["../secret", "/etc/passwd", "a/../../b", "..\\secret"])
def test_lists_do_not_lead_out(many, line) -> None:
    (many / "train.txt").write_text(f"photo 1\n{line}\n")
    assert "leads out of the data folder" in refusal(many)


def test_what_is_refused(many, tmp_path_factory) -> None:
    assert refusal(None).startswith("The data set folder needs its folder: add data.root=FOLDER")
    assert "does not exist" in refusal(many / "nowhere")
    empty = tmp_path_factory.mktemp("empty")
    assert "classes.txt is missing" in refusal(empty)
    (empty / "classes.txt").write_text(NAMES)
    assert "has no folder of images" in refusal(empty)
    (empty / "images").mkdir()
    assert "has no folder of masks" in refusal(empty)
    (empty / "masks").mkdir()
    assert "no image for 'train'" in refusal(empty)
    (many / "labels").mkdir()
    assert "has masks and labels: keep one" in refusal(many)


def test_two_images_of_one_name(many) -> None:
    (many / "images" / "photo 1.jpg").write_bytes((many / "images" / "photo 1.png").read_bytes())
    assert "have the same name: keep one" in refusal(many)


def test_doubled_and_empty_lists(many) -> None:
    (many / "train.txt").write_text("photo 1\nphoto 1.png\n")
    assert "names 'photo 1' twice" in refusal(many)
    (many / "train.txt").write_text("\n")
    assert "is empty" in refusal(many)
    (many / "train.txt").write_bytes(b"\xff\xfe")
    assert "not a text file" in refusal(many)


@pytest.mark.parametrize("name", [b"caf\xe9.png", b"bell\x07.png", b"new\nline.png"])
def test_names_that_are_no_text(many, name) -> None:
    content = (many / "images" / "photo 1.png").read_bytes()
    (Path(os.fsdecode(bytes(many / "images") + b"/" + name))).write_bytes(content)
    assert "is no plain text: rename it" in refusal(many)


def test_a_dot_is_no_other_image(many) -> None:
    (many / "train.txt").write_text("photo 1\n./photo 1\n")
    assert "names 'photo 1' twice" in refusal(many)
    (many / "train.txt").write_text(".//photo 1\n")
    assert opened(many).keys == ("photo 1",)


@pytest.mark.parametrize("options", [{"train": "trainn"}, {"train": "../x"}, {"train": "val"}])
def test_a_part_that_was_asked_for_must_be_there(many, options) -> None:
    assert "has no subset" in refusal(many, **options)


def test_lists_in_capitals_are_not_passed_over(many) -> None:
    (many / "Train.txt").write_text("photo 1\n")
    assert "has no subset 'train'" in refusal(many) and "but it has Train" in refusal(many)


def test_lists_of_voc_beside_images(many) -> None:
    lists = many / "ImageSets" / "Segmentation"
    lists.mkdir(parents=True)
    (lists / "train.txt").write_text("photo 1\n")
    assert opened(many).keys == ("photo 1",) and opened(many).notes == ()
    assert "but it has train" in refusal(many, "test")


def test_how_images_were_held_out_is_said(many) -> None:
    assert "a hash of their names" in opened(many).notes[0]


def test_linked_folders_count_and_loops_end(many, tmp_path_factory) -> None:
    other = write_folder(tmp_path_factory.mktemp("other"), {"x": [1], "y": [2]}, NAMES)
    for kind in ("images", "masks"):
        (many / kind / "more").symlink_to(other / kind)
        (other / kind / "loop").symlink_to(many / kind)
    keys = {*opened(many).keys, *opened(many, "test").keys}
    assert len(keys) == 42 and {"more/x", "more/y"} <= keys


def test_folder_that_cannot_be_read(many, monkeypatch) -> None:
    def refuse(path, **options):
        options["onerror"](PermissionError(13, "Permission denied", str(path)))
        return iter(())

    monkeypatch.setattr(os, "walk", refuse)
    assert "images cannot be read: Permission denied" in refusal(many)


def test_lossy_masks(tmp_path) -> None:
    write_pair(tmp_path / "images" / "a.png", tmp_path / "masks" / "a.jpg", [1])
    (tmp_path / "classes.txt").write_text(NAMES)
    assert "holds JPEG or WebP files" in refusal(tmp_path)


def test_root_that_is_a_file(many) -> None:
    assert "is no folder" in refusal(many / "classes.txt")


@pytest.mark.parametrize("name", ["classes.txt", "train.txt"])
def test_pipes_are_not_waited_for(many, name) -> None:
    (many / name).unlink(missing_ok=True)
    os.mkfifo(many / name)
    assert "it is not an ordinary file" in refusal(many)
    (many / name).unlink()
    (many / name).symlink_to("/dev/zero")
    assert "it is not an ordinary file" in refusal(many)


def test_more_names_than_masks_can_hold(many) -> None:
    (many / "classes.txt").write_text("\n".join(f"class {i}" for i in range(256)))
    assert refusal(many).startswith(f"{many / 'classes.txt'}: ")
