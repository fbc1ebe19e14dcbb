"""Writing the new folder: files, splits, turned images, problems, and nothing left behind."""

import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from made_sources import (
    EXPECTED,
    HEIGHT,
    WIDTH,
    labelme_documents,
    make_labelme,
    make_pairs,
    photo,
    refusal,
    write,
)
from PIL import Image, ImageOps

from segue.data import convert as module
from segue.data.annotations import read_source
from segue.data.annotations.base import Box, Drawing, Region, Source
from segue.data.convert import convert


def made(folder: Path, count: int, split=None, **options) -> Source:
    """Images with a rectangle of class cat each."""
    drawings = [
        Drawing(
            folder / f"{number}.json",
            f"{number}.png",
            photo(folder / f"{number}.png", number),
            regions=(Region("cat", Box(1, 1, 3, 3)),),
            split=split(number) if split else None,
            **options,
        )
        for number in range(count)
    ]
    return Source("made", "labelme", ("cat",), tuple(drawings))


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


# Files


@pytest.mark.parametrize("layout", ["voc", "folder"])
def test_images_are_copied_where_they_can_be(layout, tmp_path: Path) -> None:
    root = tmp_path / "source"
    made_images = {
        "plain": photo(root / "plain.jpg", 1, quality=80),
        "named": photo(root / "named.png", 2, format="JPEG"),
        "lossless": photo(root / "lossless.png", 3),
    }
    grey = root / "grey.jpg"
    Image.open(made_images["plain"]).convert("L").save(grey)
    drawings = [
        Drawing(path, path.name, path, regions=(Region("cat", Box(0, 0, 2, 2)),))
        for path in (*made_images.values(), grey)
    ]
    convert(Source("s", "labelme", ("cat",), tuple(drawings)), tmp_path / "out", layout)
    images = tmp_path / "out" / ("JPEGImages" if layout == "voc" else "images")
    for key in ("plain", "named"):
        assert (images / f"{key}.jpg").read_bytes() == made_images[key].read_bytes()
    if layout == "folder":
        written = Image.open(images / "lossless.png")
        assert np.array_equal(np.asarray(written), np.asarray(Image.open(made_images["lossless"])))
        with Image.open(images / "grey.png") as other:
            assert written.mode == other.mode == "RGB"
    else:
        written = Image.open(images / "lossless.jpg")
        assert (written.format, written.mode) == ("JPEG", "RGB")
        assert [part[1:3] for part in written.layer] == [(1, 1)] * 3, "colours are not stored coarser"
        error = np.asarray(written).astype(int) - np.asarray(Image.open(made_images["lossless"]))
        assert np.abs(error).max() < 30


def test_masks_and_lists_of_the_folder_layout(tmp_path: Path) -> None:
    convert(read_source(make_pairs(tmp_path / "source")), tmp_path / "out", "folder")
    assert files(tmp_path / "out") == [
        *("classes.txt", "images/one.jpg", "images/two.jpg", "masks/one.png", "masks/two.png"),
        *("train.txt", "val.txt"),
    ]


# Splits


def test_a_share_is_for_testing_and_stays_there_when_images_are_added(tmp_path: Path) -> None:
    def val(count: int) -> set[str]:
        convert(made(tmp_path / f"s{count}", count), tmp_path / f"out{count}", "folder", test_share=0.3)
        lists = [(tmp_path / f"out{count}" / f"{name}.txt").read_text().split() for name in ("train", "val")]
        assert sorted(lists[0] + lists[1], key=int) == [str(number) for number in range(count)]
        return set(lists[1])

    few, many = val(30), val(60)
    assert few == {key for key in many if int(key) < 30}
    assert 10 <= len(many) <= 26


@pytest.mark.parametrize("share", [0.001, 0.999])
def test_both_splits_have_an_image(share: float, tmp_path: Path) -> None:
    result = convert(made(tmp_path / "s", 5), tmp_path / "out", "folder", test_share=share)
    assert sorted(result.images.values()) == [1, 4]
    assert any("for testing" in note for note in result.notes)


def test_one_image_is_too_few(tmp_path: Path) -> None:
    assert "At least two images" in refusal(convert, made(tmp_path / "s", 1), tmp_path / "out", "folder")


def test_splits_of_the_source_are_kept(tmp_path: Path) -> None:
    told = made(tmp_path / "a", 6, lambda number: ("train", "train", "val", "test", None, "train")[number])
    result = convert(told, tmp_path / "out", "folder")
    assert result.images == {"train": 4, "val": 1, "test": 1}
    assert "1 image of no split" in " ".join(result.notes)
    assert (tmp_path / "out" / "test.txt").read_text() == "3\n"
    told = made(tmp_path / "b", 3, lambda number: "test" if number else "train")
    assert convert(told, tmp_path / "second", "folder").images == {"train": 1, "val": 2}
    told = made(tmp_path / "c", 3, lambda number: "train")
    assert sum(convert(told, tmp_path / "third", "folder").images.values()) == 3
    assert (tmp_path / "third" / "val.txt").read_text().strip()


# Turned images


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("seen", ["upright", "stored"])
@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_masks_turn_with_their_image(orientation: int, seen: str, suffix: str, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = photo(tmp_path / "s" / f"x.{suffix}", 5, exif=exif)
    with Image.open(path) as image:
        upright = np.asarray(ImageOps.exif_transpose(image))
    size = (WIDTH, HEIGHT) if seen == "stored" else upright.shape[1::-1]
    other = made(tmp_path / "s", 1).drawings[0]
    drawing = Drawing(path, path.name, path, size, (Region("cat", Box(1, 2, 3, 3)),))
    source = Source("s", "labelme", ("cat",), (drawing, other))
    convert(source, tmp_path / "out", "folder")
    assert np.array_equal(np.asarray(Image.open(tmp_path / "out" / "images" / "x.png")), upright)
    frame = np.zeros(size[::-1], dtype=np.uint8)
    frame[2:4, 1:4] = 1
    if seen == "stored" and orientation >= 5:
        frame = np.asarray(ImageOps.exif_transpose(with_orientation(frame, orientation)))
    assert np.array_equal(np.asarray(Image.open(tmp_path / "out" / "masks" / "x.png")), frame)


def with_orientation(pixels: np.ndarray, orientation: int) -> Image.Image:
    image = Image.fromarray(pixels)
    image.getexif()[0x0112] = orientation
    return image


def test_a_turned_jpeg_is_not_copied(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    path = photo(tmp_path / "s" / "x.jpg", 5, exif=exif)
    drawing = Drawing(path, "x.jpg", path, regions=(Region("cat", Box(1, 2, 3, 3)),))
    convert(Source("s", "x", ("cat",), (drawing, *made(tmp_path / "s", 1).drawings)), tmp_path / "out", "voc")
    with Image.open(tmp_path / "out" / "JPEGImages" / "x.jpg") as written:
        assert written.size == (HEIGHT, WIDTH) and not written.getexif()


def test_another_size_is_told_with_both(tmp_path: Path) -> None:
    text = refusal(convert, made(tmp_path / "s", 2, size=(99, 10)), tmp_path / "out", "voc")
    assert "0.png is 12 x 10" in text


# What goes wrong


def test_all_problems_are_collected_and_the_first_five_shown(tmp_path: Path) -> None:
    source = made(tmp_path / "s", 9)
    for drawing in source.drawings[:7]:
        drawing.image.write_bytes(b"no image")
    text = refusal(convert, source, tmp_path / "out", "voc")
    assert text.startswith("7 of 9 images cannot be used:") and "and 2 more" in text and "--skip-bad" in text
    assert all(f"{number}.png is not an image" in text for number in range(5)) and "5.png" not in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s"]
    result = convert(source, tmp_path / "out", "voc", skip_bad=True)
    assert len(result.skipped) == 7 and sum(result.images.values()) == 2
    assert len(list((tmp_path / "out" / "JPEGImages").iterdir())) == 2


def test_nothing_but_bad_images(tmp_path: Path) -> None:
    source = made(tmp_path / "s", 2)
    for drawing in source.drawings:
        drawing.image.unlink()
    text = refusal(convert, source, tmp_path / "out", "voc", skip_bad=True)
    assert "2 of 2 images" in text and "is missing" in text and "Nothing is left" in text


def test_masks_without_any_class_are_refused(tmp_path: Path) -> None:
    source = made(tmp_path / "s", 2)
    blank = [Drawing(d.file, d.name, d.image) for d in source.drawings]
    text = refusal(convert, Source("s", "x", ("cat",), tuple(blank)), tmp_path / "out", "voc")
    assert "no image shows any class" in text


def test_notes(tmp_path: Path) -> None:
    root = make_labelme(tmp_path / "s")
    write(root / "three.json", labelme_documents()["one"] | {"imagePath": "three.jpg", "shapes": []})
    photo(root / "three.jpg", 3)
    text = (root / "two.json").read_text().replace('"dog"', '"Dog"')
    (root / "two.json").write_text(text)
    notes = " ".join(convert(read_source(root), tmp_path / "out", "voc").notes)
    assert "first three.jpg" in notes
    assert "'Dog' and 'dog' are two classes" in notes and "have no image in" in notes
    assert "1 was chosen by its name." in notes
    (root / "two.json").write_text(text.replace('"Dog"', '"dog"'))
    notes = " ".join(convert(read_source(root), tmp_path / "again", "voc").notes)
    assert "1 class has no image in" in notes


@pytest.mark.parametrize(
    ("name", "value"), [("layout", "yolo"), ("test_share", 0.0), ("test_share", 1.0), ("bits", 17)]
)
def test_bad_wishes(name: str, value, tmp_path: Path) -> None:
    wishes = {"layout": "voc", "test_share": 0.2} | {name: value}
    text = refusal(convert, made(tmp_path / "s", 2), tmp_path / "out", **wishes)
    assert str(value) in text and (name != "test_share" or "above 0 and below 1" in text)


@pytest.mark.parametrize(
    ("bits", "white", "meaning"), [(16, 65535, "full range"), (12, 4095, "4095 is white")]
)
def test_16_bit_images(bits: int, white: int, meaning: str, tmp_path: Path) -> None:
    source = made(tmp_path / "s", 3)
    for drawing in source.drawings[:2]:
        Image.fromarray(np.full((HEIGHT, WIDTH), white, dtype=np.uint16)).save(drawing.image)
    result = convert(source, tmp_path / "out", "folder", bits=bits)
    assert np.asarray(Image.open(tmp_path / "out" / "images" / "0.png")).min() == 255
    assert f"2 16-bit images became 8 bit (--bits {bits}: {meaning})." in result.notes
    assert not any("16-bit" in note for note in convert(made(tmp_path / "t", 2), tmp_path / "u", "voc").notes)


# The place of the new folder


def test_the_place_must_be_free(tmp_path: Path) -> None:
    source = made(tmp_path / "s", 2)
    out = tmp_path / "out"
    write(out / "thesis.txt", "precious")
    assert "thesis.txt is there" in refusal(convert, source, out, "voc")
    assert files(out) == ["thesis.txt"]
    assert "is a file" in refusal(convert, source, out / "thesis.txt", "voc")
    assert "not empty" in refusal(convert, source, Path("/"), "voc")
    (out / "thesis.txt").unlink()
    assert convert(source, out, "voc").out == out


def test_a_stale_folder_of_ours_is_replaced_and_a_foreign_one_never(tmp_path: Path) -> None:
    source = made(tmp_path / "s", 2)
    foreign = write(tmp_path / "out.partial" / "thesis.txt", "precious")
    assert "not written by a conversion" in refusal(convert, source, tmp_path / "out", "voc")
    assert foreign.read_text() == "precious"
    write(foreign.parent / ".segue-convert", "")
    convert(source, tmp_path / "out", "voc")
    assert not foreign.parent.exists() and "thesis.txt" not in files(tmp_path / "out")
    assert ".segue-convert" not in files(tmp_path / "out")


def test_two_conversions_to_one_place(tmp_path: Path) -> None:
    source, out = made(tmp_path / "s", 3), tmp_path / "out"
    texts = []
    convert(source, out, "voc", advance=lambda *_: texts.append(refusal(convert, source, out, "voc")))
    assert len(texts) == 3 and all("Another conversion is writing" in text for text in texts)
    assert len(list((out / "JPEGImages").iterdir())) == 3


def test_a_linked_partial_folder_is_foreign(tmp_path: Path) -> None:
    write(tmp_path / "mine" / ".segue-convert", "")
    os.symlink(tmp_path / "mine", tmp_path / "out.partial")
    assert "in the way" in refusal(convert, made(tmp_path / "s", 2), tmp_path / "out", "voc")
    assert files(tmp_path / "mine") == [".segue-convert"]


def test_a_disk_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "write_mask", full)
    text = refusal(convert, made(tmp_path / "s", 3), tmp_path / "out", "voc", skip_bad=True)
    assert f"Cannot write {tmp_path / 'out'}: No space left on device" in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s"]


def test_ctrl_c_leaves_nothing_and_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, before = made(tmp_path / "s", 60), set(threading.enumerate())  # tests before may have left some
    calls, begun = [], []
    attempt = module._attempt
    monkeypatch.setattr(
        module, "_attempt", lambda *words: (begun.append(1), time.sleep(0.01), attempt(*words))[2]
    )

    def interrupt(done: int, total: int) -> None:
        calls.append((done, total))
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(source, tmp_path / "out", "voc", advance=interrupt)
    assert calls == [(1, 60), (2, 60), (3, 60)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s"]
    assert set(threading.enumerate()) <= before and len(begun) < 50


def test_progress_reaches_the_end(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    convert(made(tmp_path / "s", 4), tmp_path / "out", "voc", advance=lambda *call: calls.append(call))
    assert calls == [(number, 4) for number in range(1, 5)]


def test_expected_masks_are_worth_comparing_with() -> None:
    assert {0, 1, 2, 255} == {value for mask in EXPECTED.values() for value in np.unique(mask).tolist()}
