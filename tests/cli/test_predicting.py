"""`segue predict` from the command line, with a network."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from deploy.predicting import photo, read_ids, save_photos
from PIL import Image

import segue as package
from segue.core.config import ModelConfig
from segue.deploy.model import Model
from segue.deploy.prepare import Preparation


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """A network with random weights and clear answers."""
    torch.manual_seed(0)
    network = package.Segmenter(ModelConfig(backbone="tiny", head="tiny", output_stride=8))
    network.grow(package.Step(index=0, new=(1, 2)), balanced=False)
    for parameter in network.classifier.parameters():
        torch.nn.init.normal_(parameter, std=3.0)
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    Model(network.eval(), ("background", "cat", "Vögel, große"), Preparation(48)).save(path)
    return path


def test_masks_are_those_of_the_model(segue, model, tmp_path):
    photos = save_photos(tmp_path / "photos", 3)
    code, text, err = segue("predict", model, tmp_path / "photos", "--out", tmp_path / "out", "--batch", "1")
    assert code == 0 and "3 images" in text and "images/s" in text
    loaded = package.load(model, device="cpu")
    for number, pixels in enumerate(photos):
        assert np.array_equal(
            read_ids(tmp_path / "out" / "masks" / f"{number}.png"), loaded.predict(pixels).ids
        )
    again = shlex.split(err.splitlines()[-1].removeprefix("Next: segue ").partition("#")[0])
    assert segue(*again)[0] == 0 and (tmp_path / "out" / "overlays" / "0.png").is_file()


def test_skipped_files_are_named_and_the_exit_code_says_so(segue, model, tmp_path):
    save_photos(tmp_path / "photos", 1)
    (tmp_path / "photos" / "bad.jpg").touch()
    words = ("predict", model, tmp_path / "photos", "--out", tmp_path / "out")
    code, text, _ = segue(*words)
    assert code == 1 and "bad.jpg" in text
    code, text, _ = segue(*words, "--resume", "--json")
    document = json.loads(text)
    assert code == 1 and len(document["images"]) == len(document["skipped"]) == 1


@pytest.mark.parametrize("target", ["coco", "labelme", "labelstudio", "voc"])
def test_annotations_come_back_by_the_next_command(segue, model, tmp_path, target):
    save_photos(tmp_path / "photos", 4)
    words = ("predict", model, tmp_path / "photos", "--out", tmp_path / "out", "--to", target, "--flips")
    code, _, err = segue(*words, "--scales", "0.75,1")
    assert code == 0, err
    line = err.splitlines()[-1].removeprefix("Next: segue ").partition("#")[0]
    assert ("EXPORT.json" in line) is (target == "labelstudio"), "its tasks are no result"
    export = tmp_path / "out" / "labelstudio" / "tasks.json"  # the tool adds to it what was drawn
    line = line.replace("MINE", str(tmp_path / "mine")).replace("EXPORT.json", str(export))
    code, _, err = segue(*shlex.split(line), "--to", "folder")
    assert code == 0, err
    names = (tmp_path / "mine" / "classes.txt").read_text().splitlines()
    for number in range(4):
        found = read_ids(tmp_path / "mine" / "masks" / f"{number}.png")
        ids = read_ids(tmp_path / "out" / "masks" / f"{number}.png")
        known = ("background", "cat", "Vögel, große")
        table = np.array([names.index(name) if name in names else 255 for name in known])
        assert np.array_equal(found, table[ids])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("none", "photos"), "There is no model none"),
        (("photos/0.png", "photos"), "not a readable model file"),
        (("MODEL", "none"), "There is no file or folder none"),
        (("MODEL", "photos", "--scales", "a"), "--scales takes numbers"),
        (("MODEL", "photos", "--scales", "9"), "Scales lie between"),
        (("MODEL", "photos", "--compare", "none"), "There is no model none"),
        (("MODEL", "-", "--to", "coco"), "--to is for image files"),
        (("MODEL", "photos", "--tile", "1"), "64"),
    ],
)
def test_wrong_words_write_nothing(segue, model, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    save_photos(tmp_path / "photos", 1)
    code, _, err = segue("predict", *(model if word == "MODEL" else word for word in words), "--out", "out")
    assert code == 2 and message in err and os.listdir(tmp_path) == ["photos"]


def test_batches_and_probabilities_agree_with_one_image_at_a_time(model):
    loaded = package.load(model, device="cpu")
    photos = [photo(60, 90, 1), photo(120, 180, 2)]  # one input size, two sizes of their own
    together = loaded.answers(photos)
    for pixels, answer in zip(photos, together, strict=True):
        alone = loaded.predict(pixels, probabilities=True)
        assert answer.ids.shape == pixels.shape[:2] and (answer.ids == alone.ids).mean() > 0.999
        assert np.allclose(answer.confidence, alone.probabilities.max(0), atol=1e-4)
    seen = loaded.probabilities(np.stack([photo(48, 64, 3)] * 2))
    assert seen.shape == (2, 3, 48, 64) and np.allclose(seen.sum(1), 1, atol=1e-5)
    assert loaded.digest == package.load(model, device="cpu").digest
    loaded.network.classifier.to(torch.float32)
    next(loaded.network.parameters()).data += 1
    assert loaded.digest != package.load(model, device="cpu").digest


def test_a_closed_background_is_honoured(model):
    loaded = replace(package.load(model, device="cpu"), closed=True)
    assert (
        loaded.answers([photo()])[0].ids.min() > 0 and loaded.digest != replace(loaded, closed=False).digest
    )
    assert np.allclose(loaded.probabilities(photo()[None])[:, 0], 0)


SLOW = """
import sys, time
from deploy.predicting import Brightness
from segue import cli
from segue.deploy import predictor

class Slow(Brightness):
    def probabilities(self, images):
        time.sleep(0.05)
        return super().probabilities(images)

predictor.open_predictor = lambda path, device: Slow()
cli.main()
"""


def test_ctrl_c_ends_at_once_and_resume_goes_on(segue, tmp_path):
    """In the midst of an image of 800 tiles; no torch is needed for that."""
    save_photos(tmp_path / "photos", 1)
    Image.fromarray(photo(1000, 1000)).save(tmp_path / "photos" / "large.png")
    words = ["predict", "model", str(tmp_path / "photos"), "--out", str(tmp_path / "out")]
    words += ["--tile", "64", "--batch", "1"]
    paths = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": paths},
    )
    deadline = time.monotonic() + 60
    while not list((tmp_path / "out").glob("masks/.large*")) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in err
    assert not list((tmp_path / "out").rglob("*.part")), "no half-written file"
    assert json.loads((tmp_path / "out" / "predictions.json").read_text())["skipped"] == []
