"""Figures of the paper from stored pictures: scores of single images by hand, and which images are shown."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from segue.core.errors import UserError
from segue.core.records import RunRecord, StepRecord
from segue.report.comparison import Stat
from segue.report.paper_figures import (
    Samples,
    chosen_images,
    picture_figure,
    read_samples,
    sensitivity_figure,
)

TRUTH = np.array([[0, 0, 1, 1], [0, 0, 2, 255]], np.uint8)
GOOD, BAD = np.array([[0, 0, 1, 1], [0, 0, 2, 2]], np.uint8), np.zeros((2, 4), np.uint8)


def run(folder: Path, *predicted: np.ndarray) -> RunRecord:
    """A run of two steps that keeps an image for each prediction of its last step."""
    (folder / "samples").mkdir(parents=True)
    keys = [{"key": f"image {number}"} for number in range(len(predicted))]
    (folder / "samples" / "index.json").write_text(json.dumps({"samples": keys}))
    for number, labels in enumerate(predicted):
        own = folder / "samples" / str(number)
        own.mkdir()
        pictures = {"truth": TRUTH, "step0": np.minimum(labels, 1), "step1": labels}
        for name, picture in {**pictures, "input": np.zeros((2, 4, 3), np.uint8)}.items():
            Image.fromarray(picture).save(own / f"{name}.png")
    rest = {name: {} for name in ("policy", "versions", "losses", "seconds", "images", "parameters")}
    fields = {"run": "r", "method": "m", "dataset": "d", "groups": (("a",), ("b",)), "seed": 0, **rest}
    fields |= {"recipe_hash": "", "peak_memory": 0}
    steps = tuple(
        StepRecord(
            **fields, step=k, classes=("background", "a", "b")[: 2 + k], confusion=((0,) * (2 + k),) * (2 + k)
        )
        for k in range(2)
    )
    return RunRecord(folder, {}, steps)


def samples(folder: Path, *predicted: np.ndarray) -> Samples:
    found = read_samples(run(folder, *predicted))
    assert found is not None
    return found


def test_score_of_an_image_by_hand(tmp_path: Path) -> None:
    found = samples(tmp_path, GOOD, BAD)
    assert found.score(0, 1) == pytest.approx(100)
    assert found.score(1, 1) == pytest.approx(
        100 * (4 / 7) / 3
    )  # background alone is hit: 4 of 7 scored pixels
    assert found.score(1, 0) == pytest.approx(100 * (4 / 6) / 2), "class b has not arrived: it is not scored"


def test_images_with_the_largest_gain_come_first_or_those_named(tmp_path: Path) -> None:
    rows = {"MiB": samples(tmp_path / "mib", GOOD, BAD), "Ours": samples(tmp_path / "caf", GOOD, GOOD)}
    assert chosen_images(rows, 1) == [1]
    assert chosen_images(rows, 1, ["image 0"]) == [0]
    with pytest.raises(UserError, match="kept no pictures of 'image 7'"):
        chosen_images(rows, 1, ["image 7"])


@pytest.mark.parametrize("show", ["predictions", "attention", "steps", "attention over steps"])
def test_figures_are_written(tmp_path: Path, show: str) -> None:
    rows = {"MiB": samples(tmp_path / "mib", GOOD, BAD), "Ours": samples(tmp_path / "caf", GOOD, GOOD)}
    chart = picture_figure("Figure", show, rows, 2)
    assert "IoU 100.0" in chart.alt
    for ending in ("svg", "pdf", "png"):
        assert chart.save(tmp_path / f"figure.{ending}").stat().st_size > 500


def test_weights_stand_as_plain_numbers_below_the_curves(tmp_path: Path) -> None:
    points = {weight: [Stat(50.0), Stat(20.0), Stat(40.0, 1.0)] for weight in (0.1, 1.0, 10.0)}
    path = sensitivity_figure("Figure 6", {"lambda_D": points}).save(tmp_path / "f.svg")
    text = path.read_text()
    assert ">0.1<" in text and ">10<" in text and "mathdefault" not in text


def test_a_run_without_pictures(tmp_path: Path) -> None:
    assert read_samples(RunRecord(tmp_path, {}, ())) is None
