"""LabelMe files: shapes, images inside, and what can be wrong in them."""

import base64
from pathlib import Path

import numpy as np
import pytest
from made_sources import (
    EXPECTED,
    HEIGHT,
    WIDTH,
    labelme_documents,
    make_labelme,
    masks_of,
    photo,
    png_text,
    refusal,
    write,
)

from segue.data.annotations import read_source
from segue.data.convert import convert


def source_with(root: Path, *shapes: dict, **fields) -> Path:
    """Two images; the first has these shapes and fields."""
    make_labelme(root)
    document = labelme_documents()["one"] | fields
    write(root / "one.json", document | ({"shapes": list(shapes)} if shapes else {}))
    return root


def shape(kind: str | None, points: list, label: str = "cat", **more) -> dict:
    return {"label": label, "shape_type": kind, "points": points, **more}


def area(root: Path, out: Path) -> int:
    return int((masks_of(root, out)["one"] == 1).sum())


@pytest.mark.parametrize(
    ("made", "pixels"),
    [
        (shape("rectangle", [[5, 4], [2, 2]]), 12),
        (shape("rectangle", [[2, 2], [5, 2], [5, 4], [2, 4]]), 12),
        (shape("circle", [[5, 5], [5, 7]]), 13),
        (shape("polygon", [[2, 2], [5, 2], [5, 4], [2, 4]]), 12),
        (shape(None, [[2, 2], [5, 2], [5, 4], [2, 4]]), 12),
        (shape("rotation", [[2, 2], [5, 2], [5, 4], [2, 4]]), 12),
        (shape("mask", [[2.0, 2.0], [4.0, 3.0]], mask=png_text(np.eye(2, 3, dtype=bool))), 2),
        (shape("rectangle", [[-1e308, -1e308], [1e308, 1e308]]), WIDTH * HEIGHT),
        (shape("circle", [[5, 5], [1e308, -1e308]]), WIDTH * HEIGHT),
        (shape("circle", [[-1e308, 5], [1e308, 5]]), WIDTH * HEIGHT),
    ],
)
def test_shapes(made: dict, pixels: int, tmp_path: Path) -> None:
    assert area(source_with(tmp_path / "source", made), tmp_path / "out") == pixels


def test_lines_points_and_flat_shapes_are_left_out_and_told(tmp_path: Path) -> None:
    shapes = [shape(kind, [[1, 1], [5, 5]]) for kind in ("line", "linestrip", "point", "points")]
    flats = [
        shape("polygon", [[1, 1], [5, 5]]),
        shape("polygon", [[1.1, 1.1], [5.5, 5.5], [9.9, 9.9], [3.3, 3.3]]),
        shape("rectangle", [[1, 1], [1, 5]]),
        shape("circle", [[1, 1], [1, 1]]),
    ]
    root = source_with(tmp_path / "source", *shapes, *flats, shape("rectangle", [[1, 1], [2, 2]]))
    result = convert(read_source(root), tmp_path / "out", "voc")
    assert any("8 shapes" in note and str(root / "one.json") in note for note in result.notes)
    assert sum(counts["cat"] for counts in result.pixels.values()) == 4


def test_names_of_lines_alone_are_no_classes(tmp_path: Path) -> None:
    root = source_with(tmp_path, shape("line", [[1, 1], [2, 2]], "wire"), shape("circle", [[3, 3], [3, 5]]))
    assert read_source(root).classes == ("cat", "dog")


@pytest.mark.parametrize(
    "path", ["..\\pictures\\one.jpg", "../pictures/one.jpg", "C:\\x\\one.jpg", "one.jpg"]
)
def test_paths_lead_to_the_image(path: str, tmp_path: Path) -> None:
    root = tmp_path / "source"
    for seed, (key, document) in enumerate(labelme_documents().items()):
        photo(root / "pictures" / f"{key}.jpg", seed)
        write(root / "labels" / f"{key}.json", document | {"imagePath": path.replace("one", key)})
    masks = masks_of(root, tmp_path / "out")
    assert all(np.array_equal(masks[key], EXPECTED[key]) for key in EXPECTED)
    masks = masks_of(root / "labels", tmp_path / "again", root / "pictures")
    assert all(np.array_equal(masks[key], EXPECTED[key]) for key in EXPECTED)


def test_an_image_inside_is_used_when_its_file_is_missing(tmp_path: Path) -> None:
    root = source_with(tmp_path / "source")
    content = (root / "one.jpg").read_bytes()
    (root / "one.jpg").unlink()
    document = labelme_documents()["one"] | {"imageData": base64.b64encode(content).decode()}
    write(root / "one.json", document)
    assert np.array_equal(masks_of(root, tmp_path / "out")["one"], EXPECTED["one"])
    assert (tmp_path / "out" / "images" / "one.jpg").read_bytes() == content
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        *("classes.txt", "images", "masks", "train.txt", "val.txt")
    ]


@pytest.mark.parametrize("data", ["%%%", "AAAA", base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(40)).decode()])
def test_an_image_inside_that_cannot_be_read(data: str, tmp_path: Path) -> None:
    root = source_with(tmp_path / "source", imageData=data)
    (root / "one.jpg").unlink()
    text = refusal(lambda: convert(read_source(root), tmp_path / "out", "voc"))
    assert str(root / "one.json") in text and "partial" not in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source"]


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (shape("ellipse", []), "the shape type 'ellipse' is unknown"),
        (shape(["polygon"], []), "is unknown"),  # type: ignore[arg-type]
        (shape("polygon", [[1, 2], [3]]), "points should be a list of [x, y]"),
        (shape("polygon", None), "points should be a list of [x, y]"),  # type: ignore[arg-type]
        (shape("polygon", [[1, 2], [3, 4], [5, None]]), "one is None"),
        (shape("rectangle", [[1, 2], [3, 4], [5, 6]]), "2 or 4 points"),
        (shape("circle", [[1, 2]]), "a circle has 2 points"),
        (shape("mask", [[1, 2]]), "a mask has 2 points"),
        (shape("mask", [[0, 0], [1, 1]]), "'mask' is not base64"),
        (shape("mask", [[0, 0], [1, 1]], mask="AAAA"), "is not an image that can be read"),
        (shape("mask", [[0, 0], [1, 1]], mask=png_text(np.ones((3, 2), dtype=bool))), "is 2 x 3 pixels"),
        (shape("polygon", [], label=None), "a class name should be text"),  # type: ignore[arg-type]
        (shape("polygon", [], label=" "), "a class name is empty"),
    ],
)
def test_what_is_wrong_is_named(made: dict, message: str, tmp_path: Path) -> None:
    root = source_with(tmp_path / "source", made)
    text = refusal(lambda: convert(read_source(root), tmp_path / "out", "voc"))
    assert message in text and str(root / "one.json") in text


def test_a_damaged_file_is_a_bad_image_that_can_be_skipped(tmp_path: Path) -> None:
    root = make_labelme(tmp_path / "source")
    for key in ("three", "four"):
        write(root / f"{key}.json", labelme_documents()["one"] | {"imagePath": f"{key}.jpg"})
        photo(root / f"{key}.jpg", len(key))
    (root / "four.json").write_text("{")
    source = read_source(root)
    assert "1 of 4 images" in refusal(convert, source, tmp_path / "out", "voc")
    result = convert(source, tmp_path / "out", "voc", skip_bad=True)
    assert sum(result.images.values()) == 3
    assert len(result.skipped) == 1 and str(root / "four.json") in result.skipped[0]


def test_images_without_a_file_are_told(tmp_path: Path) -> None:
    root = make_labelme(tmp_path)
    assert read_source(root).notes == ()
    write(root / "broken.json", "{")
    for name in ("broken.jpg", "new.JPG", "._new.jpg"):
        (root / name).write_bytes((root / "one.jpg").read_bytes())
    assert read_source(root).notes == ("1 image without an annotation file was left out, first new.JPG.",)
    assert read_source(root / "one.json").notes == ()


def test_folders_named_train_and_val_give_the_split(tmp_path: Path) -> None:
    for key, split in (("one", "train"), ("two", "val")):
        photo(tmp_path / split / f"{key}.jpg")
        write(tmp_path / split / f"{key}.json", labelme_documents()[key])
    assert [drawing.split for drawing in read_source(tmp_path).drawings] == ["train", "val"]
