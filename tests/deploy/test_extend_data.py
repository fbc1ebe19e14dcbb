"""What a model may be extended with: annotations of other tools, converted on the way."""

from __future__ import annotations

import errno
import functools
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pets import QUIET, SIDE, content, draw, only, state
from PIL import Image

import segue
from segue.core.errors import UserError
from segue.data import convert as convert_module
from segue.data.annotations import target
from segue.deploy import new_data
from segue.deploy.new_data import LISTING
from segue.engine.folder import locked

WORDS = {"display": QUIET, "device": "cpu", "overrides": ["train.epochs=1"]}
SQUARE = [[4, 4], [27, 4], [27, 13], [4, 13]]
"""where pets.draw draws a single class, as programs write it that count the border in"""


def photos(root: Path, count: int = 6) -> list[Path]:
    """Images of birds, drawn somewhere else and copied without their masks."""
    root.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as elsewhere:
        source = only(Path(elsewhere), "b", "bird") / "images" / "train"
        return [Path(shutil.copy(source / f"b{number}.png", root)) for number in range(count)]


def coco(root: Path) -> Path:
    images = photos(root / "images")
    shape = [4, 4, 28, 4, 28, 14, 4, 14]
    document = {
        "images": [
            {"id": n, "file_name": path.name, "width": SIDE, "height": SIDE} for n, path in enumerate(images)
        ],
        "annotations": [
            {"id": n, "image_id": n, "category_id": 7, "segmentation": [shape], "iscrowd": 0}
            for n in range(len(images))
        ],
        "categories": [{"id": 7, "name": "bird"}],
    }
    (root / "birds.json").write_text(json.dumps(document))
    return root / "birds.json"


def labelme(root: Path) -> Path:
    for path in photos(root):
        shape = {"label": "bird", "points": SQUARE, "shape_type": "polygon"}
        document: dict[str, Any] = {"shapes": [shape], "imagePath": path.name, "imageData": None}
        path.with_suffix(".json").write_text(json.dumps(document))
    return root


def colour_masks(root: Path) -> Path:
    (root / "masks").mkdir(parents=True)
    for path in photos(root / "images"):
        picture = np.zeros((SIDE, SIDE, 3), dtype=np.uint8)
        picture[4:14, 4:28] = (9, 90, 200)
        Image.fromarray(picture).save(root / "masks" / path.name)
    (root / "labelmap.txt").write_text("background:0,0,0::\nbird:9,90,200::\n")
    return root


def cityscapes(root: Path, end: str = "labelIds", value: int = 24) -> Path:
    images, masks = root / "leftImg8bit" / "train" / "ulm", root / "gtFine" / "train" / "ulm"
    masks.mkdir(parents=True)
    for path in photos(images):
        mask = np.zeros((SIDE, SIDE), dtype=np.uint8) if end == "labelIds" else np.full((SIDE, SIDE), 255)
        mask[4:14, 4:28] = value
        Image.fromarray(mask.astype(np.uint8)).save(masks / f"{path.stem}_gtFine_{end}.png")
        path.rename(path.with_name(f"{path.stem}_leftImg8bit.png"))
    return root


SOURCES = {"COCO": coco, "LabelMe": labelme, "images and masks": colour_masks}


@pytest.mark.parametrize("kind", SOURCES)
def test_annotations_are_recognised_and_converted(command_line, model: Path, tmp_path: Path, kind: str):
    if kind == "COCO":
        pytest.importorskip("pycocotools")
    data, out = SOURCES[kind](tmp_path / "export"), tmp_path / "grown"
    before = content(tmp_path / "export")
    words = ("extend", model, data, "--out", out, "--epochs", 1)
    code, _, err = command_line(*words)
    assert code in (0, 1), err
    assert f"{kind}, 6 images of bird" in err and str(tmp_path / "grown-data") in err
    assert segue.load(out).classes == ("background", "cat", "dog", "bird")
    assert content(tmp_path / "export") == before
    mask = next((tmp_path / "grown-data" / "masks").iterdir())
    assert np.asarray(Image.open(mask))[4:14, 4:28].all(), "the square is drawn"
    shutil.rmtree(tmp_path / "export") if data.is_dir() else data.unlink()
    with pytest.raises(UserError, match="export"):
        segue.extend(model, data, tmp_path / "other", **WORDS)


@pytest.mark.parametrize(("end", "value"), [("labelIds", 24), ("labelTrainIds", 11)])
def test_cityscapes_ids_are_recognised(model: Path, tmp_path: Path, end: str, value: int):
    data = cityscapes(tmp_path / "export", end, value)
    grown = segue.extend(model, data, tmp_path / "grown", new=["person"], **WORDS)
    assert grown.classes[-1] == "person"
    names = (tmp_path / "grown-data" / "classes.txt").read_text().split("\n")
    mask = np.asarray(Image.open(next((tmp_path / "grown-data" / "masks").iterdir())))
    assert set(mask[4:14, 4:28].ravel()) == {names.index("person")} and mask[0, 0] == 255


def test_a_resumed_extension_uses_its_conversion_again(model: Path, tmp_path: Path, monkeypatch):
    data, out = labelme(tmp_path / "export"), tmp_path / "grown"
    straight = segue.extend(model, data, tmp_path / "straight", **WORDS)
    from segue.engine import run as run_module

    with monkeypatch.context() as patch:
        patch.setattr(run_module, "record_step", lambda *_: (_ for _ in ()).throw(SystemExit))
        with pytest.raises(SystemExit):
            segue.extend(model, data, out, **WORDS)
    converted = content(tmp_path / "grown-data")
    with pytest.raises(UserError, match="--resume"):
        segue.extend(model, data, out, **WORDS)
    assert content(tmp_path / "grown-data") == converted
    (data / "b0.json").write_text("{")  # nobody looks at it again
    assert segue.extend(model, data, out, resume=True, **WORDS).classes == straight.classes
    ours, theirs = state(tmp_path / "grown-run", 1), state(tmp_path / "straight-run", 1)
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)
    assert content(tmp_path / "grown-data") == converted


def test_overwriting_replaces_a_conversion_and_nothing_else(model: Path, tmp_path: Path):
    data, out = labelme(tmp_path / "export"), tmp_path / "grown"
    segue.extend(model, data, out, **WORDS)
    (data / "b5.json").unlink()
    segue.extend(model, data, out, overwrite=True, **WORDS)
    assert len(list((tmp_path / "grown-data" / "images").iterdir())) == 5
    (tmp_path / "grown-data" / "mine.txt").write_text("notes")
    with pytest.raises(UserError, match=r"mine\.txt"):
        segue.extend(model, data, out, overwrite=True, **WORDS)
    assert (tmp_path / "grown-data" / "mine.txt").is_file()
    assert (tmp_path / "grown-data" / LISTING).is_file()


def test_a_folder_in_the_place_of_a_conversion_stays(model: Path, tmp_path: Path):
    data, precious = labelme(tmp_path / "export"), tmp_path / "grown-data"
    draw(precious, "a", (1,), ("cat",))
    before = content(precious)
    with pytest.raises(UserError, match="grown-data"):
        segue.extend(model, data, tmp_path / "grown", overwrite=True, **WORDS)
    assert content(precious) == before


def test_refused_annotations_leave_nothing(command_line, model: Path, tmp_path: Path):
    data = labelme(tmp_path / "export")
    for path in data.glob("*.json"):
        path.write_text(path.read_text().replace("bird", "dog"))
    code, _, err = command_line("extend", model, data, "--out", tmp_path / "grown")
    assert code == 2 and "no class" in err and str(data) in err
    assert {path.name for path in tmp_path.iterdir()} == {"export"}


def test_bad_annotations_are_named_with_the_way_round_them(command_line, model: Path, tmp_path: Path):
    data = labelme(tmp_path / "export")
    (data / "b0.json").write_text("{")
    code, _, err = command_line("extend", model, data, "--out", tmp_path / "grown")
    assert code == 2 and "b0.json" in err and "segue data convert" in err and "Traceback" not in err
    assert {path.name for path in tmp_path.iterdir()} == {"export"}


def test_a_conversion_that_another_extension_reads_stays(
    command_line, model: Path, tmp_path: Path, monkeypatch
):
    data, out = labelme(tmp_path / "export"), tmp_path / "grown"
    segue.extend(model, data, out, **WORDS)
    converted = content(tmp_path / "grown-data")
    monkeypatch.setattr(new_data, "locked", functools.partial(locked, patience=0.0))
    with locked(tmp_path / "grown-run"):
        code, _, err = command_line("extend", model, data, "--out", out, "--overwrite")
    assert code == 2 and "Another process" in err
    assert content(tmp_path / "grown-data") == converted
    assert sorted(path.name for path in tmp_path.glob("grown*")) == ["grown", "grown-data", "grown-run"]


def test_a_full_disk_leaves_no_piece_of_a_conversion(command_line, model: Path, tmp_path: Path, monkeypatch):
    data, writes = labelme(tmp_path / "export"), iter(range(100))
    real = target.write_mask

    def write_mask(mask: np.ndarray, path: Path) -> None:
        if next(writes) == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(mask, path)

    monkeypatch.setattr(convert_module, "write_mask", write_mask)
    code, _, err = command_line("extend", model, data, "--out", tmp_path / "grown")
    assert code == 2 and "No space left" in err and "Traceback" not in err
    assert {path.name for path in tmp_path.iterdir()} == {"export"}
