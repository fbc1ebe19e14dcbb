"""Every format gives the same masks, and what is written can be read and trained on."""

from pathlib import Path

import numpy as np
import pytest
from made_sources import EXPECTED, MAKERS, masks_of, refusal, write
from PIL import Image

from segue.core.classes import voc_palette
from segue.data.annotations import read_source
from segue.data.class_names import read_class_names
from segue.data.convert import convert


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("kind", MAKERS)
def test_every_format_becomes_the_same_voc_folder(kind: str, tmp_path: Path) -> None:
    source = read_source(MAKERS[kind](tmp_path / "source"))
    assert (source.name, source.format, source.classes) == ("source", kind, ("cat", "dog"))
    out = tmp_path / "out"
    result = convert(source, out, "voc")
    keys = {path.stem.removesuffix("_leftImg8bit"): path for path in (out / "SegmentationClass").iterdir()}
    assert keys.keys() == EXPECTED.keys()
    for key, path in keys.items():
        image = Image.open(path)
        assert image.mode == "P" and image.getpalette() == voc_palette()
        assert np.array_equal(np.asarray(image), EXPECTED[key])
    stems = sorted(path.stem for path in keys.values())
    assert names(out) == sorted(
        [
            *(f"ImageSets/Segmentation/{name}.txt" for name in ("train", "val", "trainval")),
            *(f"{folder}/{stem}{end}" for stem in stems for folder, end in FOLDERS),
            "classes.txt",
        ]
    )
    assert (out / "classes.txt").read_text() == "background\ncat\ndog\n"
    lists = {path.stem: path.read_text().split() for path in (out / "ImageSets/Segmentation").iterdir()}
    assert sorted(lists["train"] + lists["val"]) == lists["trainval"] == stems
    assert result.images == {"train": 1, "val": 1}
    assert sum(result.pixels[split]["cat"] for split in result.pixels) == 20
    assert sum(result.images_with[split]["dog"] for split in result.pixels) == 2


FOLDERS = (("JPEGImages", ".jpg"), ("SegmentationClass", ".png"))


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("layout", ["voc", "folder"])
def test_what_is_written_is_a_source_again(kind: str, layout, tmp_path: Path) -> None:
    first = convert(read_source(MAKERS[kind](tmp_path / "source")), tmp_path / "first", layout)
    source = read_source(tmp_path / "first")
    assert source.format == layout and source.classes == first.classes
    second = convert(source, tmp_path / "second", layout)
    assert (second.images, second.pixels) == (first.images, first.pixels)
    assert names(tmp_path / "first") == names(tmp_path / "second")
    for name in names(tmp_path / "first"):
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()


def test_classes_without_background_start_with_value_0(tmp_path: Path) -> None:
    root = MAKERS["folder"](tmp_path / "source")
    write(root / "classes.txt", "grass\ncat\ndog\n")
    masks = masks_of(root, tmp_path / "out")
    for key, mask in EXPECTED.items():
        assert np.array_equal(masks[key], np.where(mask == 255, 255, mask + 1))
    table = read_class_names(tmp_path / "out" / "classes.txt", "own")
    assert table.names == {1: "grass", 2: "cat", 3: "dog"}


def test_names_that_look_like_numbers_or_comments_are_read_back(tmp_path: Path) -> None:
    root = MAKERS["labelme"](tmp_path / "source")
    for path in root.glob("*.json"):
        path.write_text(path.read_text().replace('"cat"', '"3 wheeler"').replace('"dog"', '"#dog"'))
    result = convert(read_source(root), tmp_path / "out", "folder")
    assert result.classes == ("#dog", "3 wheeler")
    assert read_class_names(tmp_path / "out" / "classes.txt", "own").names == {1: "#dog", 2: "3 wheeler"}


def test_several_formats_are_named(tmp_path: Path) -> None:
    root = MAKERS["labelme"](MAKERS["coco"](tmp_path / "source"))
    message = refusal(read_source, root)
    assert "COCO" in message and "LabelMe" in message and str(root / "one.json") in message
    assert "masks" in refusal(read_source, MAKERS["folder"](MAKERS["labelme"](tmp_path / "other")))


def test_nothing_found_says_what_was_looked_for(tmp_path: Path) -> None:
    write(tmp_path / "source" / "package.json", {"name": "x"})
    message = refusal(read_source, tmp_path / "source")
    for word in ("COCO", "LabelMe", "Cityscapes", "VOC", "classes.txt", "package.json"):
        assert word in message
    assert "does not exist" in refusal(read_source, tmp_path / "none")
    assert "Unpack it" in refusal(read_source, write(tmp_path / "source" / "export.zip", "PK"))
    assert "does not exist" in refusal(read_source, tmp_path / "source", tmp_path / "none")


@pytest.mark.parametrize(
    ("name", "content", "advice"),
    [
        ("annotations.xml", "<?xml?>\n<annotations>", "export as COCO 1.0 or Segmentation mask 1.1"),
        ("min.json", [{"image": "x.jpg", "tag": [{"polygonlabels": ["a"]}]}], "export as JSON or COCO"),
        ("data.yaml", "names: [cat]", "convert to COCO first"),
        ("train/labels/x.txt", "0 0.1 0.1 0.2 0.2 0.1 0.2", "convert to COCO first"),
        ("labels/train/x.txt", "0 0.1 0.1 0.2 0.2 0.1 0.2", "convert to COCO first"),
    ],
)
def test_exports_of_another_kind_say_which_to_choose(name: str, content, advice: str, tmp_path: Path) -> None:
    file = write(tmp_path / "source" / name, content)
    Path(str(file.parent).replace("labels", "images")).mkdir(exist_ok=True, parents=True)
    text = refusal(read_source, tmp_path / "source")
    assert advice in text and str(file) in text
    assert advice in refusal(read_source, file)


def test_other_files_give_no_advice(tmp_path: Path) -> None:
    write(tmp_path / "Annotations" / "x.xml", "<annotation><object>")
    write(tmp_path / "list.json", [1, 2])
    write(tmp_path / "labels" / "x.txt", "no images beside")
    assert "holds a list" in refusal(read_source, tmp_path)


@pytest.mark.parametrize("kind", ["coco", "labelme", "polygons"])
def test_a_single_file_is_a_source(kind: str, tmp_path: Path) -> None:
    root = MAKERS[kind](tmp_path / "source")
    file = sorted(root.rglob("*.json"))[0]
    images = root if kind == "polygons" else None
    assert len(read_source(file, images).drawings) == (2 if kind == "coco" else 1)


def test_folder_names_of_annotations_lead_to_the_images_beside_them(tmp_path: Path) -> None:
    city = MAKERS["polygons"](tmp_path / "city")
    assert not any(drawing.problem for drawing in read_source(city / "gtFine").drawings)
    coco = MAKERS["coco"](tmp_path / "coco")
    assert not any(drawing.problem for drawing in read_source(coco / "annotations").drawings)
