"""`segue data convert` and `segue data fetch` from the command line, up to a training run."""

import hashlib
import json
import shlex
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from segue.data.fetch import sources

TINY = (
    *("model.backbone=tiny", "model.head=tiny", "model.output_stride=8", "train.crop=16", "train.workers=0"),
    *("train.epochs=1", "train.batch_size=2", "train.scale=[1,1]", "eval.samples=0"),
)


@pytest.fixture
def coco(tmp_path) -> Path:
    """Eight images with a cat; every second has a dog too."""
    root = tmp_path / "export"
    (root / "images").mkdir(parents=True)
    document = {
        "images": [
            {"id": i, "file_name": f"images/bild {i}.png", "width": 20, "height": 16} for i in range(8)
        ],
        "categories": [{"id": 7, "name": "cat"}, {"id": 3, "name": "dog"}],
        "annotations": [],
    }
    for i in range(8):
        Image.fromarray(np.full((16, 20, 3), 30 * i, dtype=np.uint8)).save(root / f"images/bild {i}.png")
        square = {"id": i, "image_id": i, "category_id": 7, "iscrowd": 0}
        document["annotations"].append({**square, "segmentation": [[2, 2, 10, 2, 10, 10, 2, 10]]})
        if i % 2:
            other = {"id": 100 + i, "category_id": 3, "segmentation": [[12, 2, 18, 2, 18, 10, 12, 10]]}
            document["annotations"].append({**square, **other})
    (root / "annotations.json").write_text(json.dumps(document))
    return root


def test_from_coco_to_a_trained_model(segue, coco, tmp_path) -> None:
    out = tmp_path / "mine"
    code, text, err = segue("data", "convert", coco, out, "--to", "voc", "--test-share", "0.4")
    assert code == 0, err
    assert (out / "classes.txt").read_text().split() == ["background", "dog", "cat"]  # in order of id
    assert f"Next: segue data check --on folder data.root={out}" in err
    where = ("--on", "folder", "--split", "cat/dog", f"data.root={out}", *TINY)
    code, text, err = segue("data", "check", *where)
    assert code == 0, text + err
    code, _, err = segue("train", "mib", *where, "--out", tmp_path / "run")
    assert code == 0, err
    record = json.loads((tmp_path / "run" / "steps" / "1.json").read_text())
    assert record["classes"] == ["background", "cat", "dog"]


def test_the_hint_can_be_pasted_and_bits_are_an_option(segue, coco, tmp_path) -> None:
    for path in (coco / "images").iterdir():
        Image.fromarray(np.full((16, 20), 4095, dtype=np.uint16)).save(path)
    out = tmp_path / "my data"
    code, text, err = segue("data", "convert", coco, out, "--to", "folder", "--bits", 12)
    assert code == 0, err
    hint = next(line for line in err.splitlines() if line.startswith("Next: "))
    assert shlex.split(hint)[-1] == f"data.root={out}"
    assert "8 16-bit images" in text and "--bits 12" in text
    assert np.asarray(Image.open(next((out / "images").iterdir()))).min() == 255
    assert segue("data", "convert", coco, tmp_path / "other", "--bits", 7)[0] == 2


def test_bad_images_are_told_or_left_out(segue, coco, tmp_path) -> None:
    (coco / "images" / "bild 3.png").unlink()
    out = tmp_path / "mine"
    code, _, err = segue("data", "convert", coco, out)
    assert code == 2 and "1 of 8" in err and "bild 3.png" in err
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "cache") == ["export"]
    code, text, err = segue("data", "convert", coco, out, "--skip-bad")
    assert code == 0 and "left out: " in text and "bild 3.png" in text, err


def test_nothing_to_convert(segue, tmp_path) -> None:
    code, _, err = segue("data", "convert", tmp_path / "nowhere", tmp_path / "out")
    assert code == 2 and "does not exist" in err
    (tmp_path / "empty").mkdir()
    code, _, err = segue("data", "convert", tmp_path / "empty", tmp_path / "out")
    assert code == 2 and "empty" in err
    assert not (tmp_path / "out").exists()


def test_login_needed(segue, tmp_path) -> None:
    code, _, err = segue("data", "fetch", "cityscapes", "--out", tmp_path)
    assert code == 2 and "gtFine_trainvaltest.zip" in err and "--archive" in err


def test_archive_got_by_hand(segue, tmp_path, monkeypatch) -> None:
    packed = tmp_path / "small.zip"
    with zipfile.ZipFile(packed, "w") as file:
        file.writestr("top/images/a.txt", "hello")
    content = packed.read_bytes()
    archive = sources.Archive(
        "small.zip", len(content), hashlib.sha256(content).hexdigest(), "top", "got", ("images",), 1000
    )
    monkeypatch.setitem(sources.SOURCES, "ade20k", sources.Source("Small", "got", (archive,), "Terms."))
    words = ("data", "fetch", "ade20k", "--out", tmp_path / "data", "--archive", packed)
    code, _, err = segue(*words)
    assert code == 0, err
    assert (tmp_path / "data" / "got" / "images" / "a.txt").read_text() == "hello"
    assert "Next: segue data check --on ade20k data.root=" in err
    code, _, err = segue(*words)
    assert code == 0 and "already there" in err
    packed.write_bytes(content[:-1] + b"!")
    code, _, err = segue("data", "fetch", "ade20k", "--out", tmp_path / "other", "--archive", packed)
    assert code == 2 and "small.zip" in err and not (tmp_path / "other" / "got").exists()
