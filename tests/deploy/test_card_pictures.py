"""Pictures beside a model's card: written by extend, covered by the digest, refused if they are others."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pets import only
from PIL import Image

import segue
from segue.core.config import ModelConfig
from segue.core.scenario import Step
from segue.deploy import card_pictures as pictures
from segue.deploy.card_pictures import CardPicture, card_picture, place
from segue.deploy.changes import CARD_SIDE, MostChanged
from segue.deploy.model import Model
from segue.deploy.model_folder import folder_pictures, replace_pictures
from segue.models.segmenter import Segmenter

Call = Callable[..., tuple[int, str, str]]
CLASSES = ("background", "cat", "dog")


def image(height: int = 8, width: int = 12, shade: int = 0) -> Image.Image:
    return Image.fromarray(np.full((height, width, 3), shade, dtype=np.uint8))


def stored(image: Image.Image, kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, format=kind, **options)
    return file.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model folder with two pictures."""
    network = Segmenter(ModelConfig(backbone="tiny", head="tiny", output_stride=8))
    network.grow(Step(0, new=(1, 2), old=()), balanced=False)
    Model(network, CLASSES).save(tmp_path / "model")
    replace_pictures(tmp_path / "model", [card_picture("first", image()), card_picture("second", image(9))])
    return tmp_path / "model"


def test_extend_writes_them_and_a_word_leaves_them_out(command_line: Call, model: Path, tmp_path: Path):
    data, out = only(tmp_path / "bird", "b", "bird"), tmp_path / "grown"
    words = ("extend", model, data, "--out", out, "--epochs", 1)
    code, text, err = command_line(*words)
    assert code in (0, 1) and str(out / "pictures") in text, err
    names = sorted(path.name for path in (out / "pictures").iterdir())
    assert names == ["1.jpg", "2.jpg", "3.jpg"], "each held-out image"
    card = (out / "README.md").read_text()
    assert all(f"({place(number)})" in card for number in (1, 2, 3)) and "% of the pixels changed" in card
    said = [card, *(one.text for one in folder_pictures(out))]
    assert not [key for key in ("b0", "b1", "b2") if key in " ".join(said)], "the user's files are not named"
    assert segue.load(out, "cpu").classes[-1] == "bird" and len(folder_pictures(out)) == 3
    for one in folder_pictures(out):
        with Image.open(io.BytesIO(one.content), formats=["JPEG"]) as shown:
            assert shown.width == 2 * CARD_SIDE and not shown.getexif()
    assert command_line("export", out, tmp_path / "shared")[0] == 0
    assert not (tmp_path / "shared" / "pictures").exists() and not folder_pictures(tmp_path / "shared")

    code, text, err = command_line(*words, "--overwrite", "--no-pictures")
    assert code in (0, 1) and "--no-pictures" not in text, err
    assert not (out / "pictures").exists() and "pictures/" not in (out / "README.md").read_text()
    assert segue.load(out, "cpu").classes[-1] == "bird"
    assert command_line(*words, "--resume")[0] in (0, 1) and len(folder_pictures(out)) == 3


def test_no_more_than_a_few_and_small():
    seen = MostChanged(CLASSES, [(0, 0, 0), (200, 0, 0), (0, 0, 200)])
    for number in range(9):
        before, after = np.zeros((500, 700), np.uint8), np.full((500, 700), number % 3, np.uint8)
        pixels = np.full((500, 700, 3), number, np.uint8)
        seen.see(f"private-{number}", pixels, before, after, np.ones_like(before, dtype=bool))
    found = seen.card_pictures()
    assert len(found) == pictures.MOST_PICTURES
    assert all(len(one.content) < 2**17 and "private" not in one.text for one in found)
    assert {one.text for one in found} == {
        f"100 % of the pixels changed, most often background → {name}" for name in CLASSES[1:]
    }


def test_replacing_leaves_none_of_the_old_ones(folder: Path):
    replace_pictures(folder, [card_picture("third", image(shade=9))])
    assert [path.name for path in (folder / "pictures").iterdir()] == ["1.jpg"]
    assert [one.text for one in folder_pictures(folder)] == ["third"]
    model = segue.load(folder, "cpu")
    model.save(folder)
    assert not (folder / "pictures").exists() and segue.load(folder, "cpu").classes == CLASSES


def damaged(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def linked(path: Path) -> None:
    secret = path.parents[2] / "secret.jpg"
    secret.write_bytes(stored(image(shade=200), "JPEG"))
    path.unlink()
    path.symlink_to(secret)


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def huge(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(2**33)


@pytest.mark.parametrize("change", [Path.unlink, damaged, linked, pipe, huge])
def test_another_file_in_the_place_of_a_picture_is_named(folder: Path, change: Callable[[Path], None]):
    change(folder / place(2))
    for reads in (segue.load, folder_pictures):
        with pytest.raises(segue.UserError, match=r"2\.jpg"):
            reads(folder)


@pytest.mark.parametrize(
    "content",
    [
        b"<script>alert(1)</script>",
        b"",
        stored(image(), "PNG"),
        stored(image(5000, 1), "JPEG"),
        stored(image(64, 64), "JPEG")[:300],
        stored(image(1200, 1200), "BMP"),
    ],
    ids=["text", "nothing", "PNG", "long", "cut off", "large"],
)
def test_what_is_no_small_picture_is_refused_though_the_digest_holds(folder: Path, content: bytes):
    replace_pictures(folder, [CardPicture("a stranger's", content)])
    for reads in (segue.load, folder_pictures):
        with pytest.raises(segue.UserError, match=r"1\.jpg"):
            reads(folder)


def test_too_many_or_too_long_words_are_refused(folder: Path):
    one = card_picture("x", image())
    for strange in ([one] * (pictures.MOST_PICTURES + 1), [CardPicture("x" * 10_000, one.content)]):
        replace_pictures(folder, strange)
        for reads in (segue.load, folder_pictures):
            with pytest.raises(segue.UserError, match="pictures"):
                reads(folder)
