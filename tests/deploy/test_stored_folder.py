"""Model folders that are kept as they were written: they load, predict the same, and can be extended."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import segue
from segue.core.progress import Display
from segue.deploy import model_folder

STORED = sorted((Path(__file__).parent / "stored").glob("*.zip"))


@pytest.fixture(params=STORED, ids=lambda path: path.stem)
def unpacked(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A stored folder `model`, with the image `photo.png` and the `mask.png` that it gave for it."""
    with zipfile.ZipFile(request.param) as archive:
        archive.extractall(tmp_path)
    return tmp_path


def test_each_format_has_a_stored_folder():
    assert [path.stem for path in STORED] == sorted(model_folder.READABLE)
    assert model_folder.FORMAT in model_folder.READABLE
    assert all(path.stat().st_size < 300_000 for path in STORED)


def test_it_predicts_what_it_did(unpacked: Path):
    model = segue.load(unpacked / "model", "cpu")
    assert model.classes == ("background", "cat", "dog", "bird")
    mask = model.predict(unpacked / "photo.png")
    assert (mask.ids == np.asarray(Image.open(unpacked / "mask.png"))).all()
    assert set(mask.names) >= {"dog", "bird"}


def test_it_loads_when_newer_folders_are_written(unpacked: Path, monkeypatch: pytest.MonkeyPatch):
    newer = "segue-folder-99"
    monkeypatch.setattr(model_folder, "FORMAT", newer)
    monkeypatch.setattr(model_folder, "READABLE", (*model_folder.READABLE, newer))
    model = segue.load(unpacked / "model", "cpu")
    model.save(unpacked / "again")
    again = segue.load(unpacked / "again", "cpu")
    assert newer in (unpacked / "again" / "config.json").read_text()
    assert again.classes == model.classes and again.history.steps == (("cat", "dog"), ("bird",))


def test_it_can_be_extended(unpacked: Path):
    for subset, count in (("train", 4), ("val", 2)):
        for name, channels in (("images", 3), ("masks", 1)):
            (unpacked / "fish" / name / subset).mkdir(parents=True)
            for number in range(count):
                picture = np.zeros((48, 48, channels), dtype=np.uint8)
                picture[8:40, 8:40] = 220 if name == "images" else 1
                place = unpacked / "fish" / name / subset / f"{number}.png"
                Image.fromarray(picture.squeeze()).save(place)
    (unpacked / "fish" / "classes.txt").write_text("background\nfish")
    grown = segue.extend(
        *(unpacked / "model", unpacked / "fish", unpacked / "grown"),
        overrides=["train.epochs=1"],
        display=Display(quiet=True),
        device="cpu",
    )
    assert grown.classes == ("background", "cat", "dog", "bird", "fish")
    assert any(name.startswith("memory.") for name in segue.load(unpacked / "model").history.kept)
