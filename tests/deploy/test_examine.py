"""Two models on the same images: the verdict, a page that begins with the image to look at, and the card."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import segue
from segue.core.config import ModelConfig
from segue.core.progress import Display
from segue.core.scenario import Step
from segue.core.verdict import Limits
from segue.deploy import examine
from segue.deploy.model import Model
from segue.models.segmenter import Output, Segmenter

NAMES = ("background", "cat", "dog", "bird")
SHADES = np.array([0, 80, 160, 240], dtype=np.uint8)
"""of each class, so that an image tells its mask"""


class Shades(Segmenter):
    """Says a pixel's class by its shade; red pixels of class `blind` are taken for the last class."""

    def __init__(self, channels: int, blind: int | None = None) -> None:
        super().__init__(ModelConfig(backbone="tiny", head="tiny", output_stride=8))
        self.grow(Step(0, new=tuple(range(1, channels)), old=()), balanced=False)
        self.channels, self.blind = channels, blind

    def forward(self, images_B3HW, old_z_BChw=None):
        green, red = images_B3HW[:, 1].float(), images_B3HW[:, 0] == 255
        answer = (green / 80).round().long()
        if self.blind is not None:
            answer[red & (answer == self.blind)] = self.channels - 1
        logits = torch.nn.functional.one_hot(answer.clamp(max=self.channels - 1), self.channels)
        return Output(logits.permute(0, 3, 1, 2).float())


def write(root: Path, key: str, ids: tuple[int, int], red: bool, names: tuple[str, ...]) -> None:
    mask = np.repeat(np.array(ids, dtype=np.uint8), 8)[None].repeat(16, axis=0)
    image = np.repeat(SHADES[[NAMES.index(names[i]) for i in range(len(names))]][mask][..., None], 3, axis=2)
    image[..., 0] = 255 if red else 0
    for kind, pixels in (("images", image), ("masks", mask)):
        (root / kind / "val").mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(root / kind / "val" / f"{key}.png")
    (root / "classes.txt").write_text("\n".join(names))


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A check folder with eight images, of which two show a dog that only the old model sees."""
    for number in range(8):
        write(tmp_path / "check", f"i{number}", (1, 2), number in (3, 5), NAMES[:3])
        write(tmp_path / "new", f"n{number}", (0, 1), False, ("background", "bird"))
    monkeypatch.setattr(examine, "_new_scores", lambda folder, known: {"bird": 70.0})
    return tmp_path / "grown"


@pytest.mark.parametrize("blind", [2, None])
def test_the_page_begins_with_the_image_to_look_at(out: Path, blind: int | None):
    old, grown = Model(Shades(3), NAMES[:3]), Model(Shades(4, blind), NAMES)
    grown.save(out)
    words = (out.parent / "new", out.parent / "check", Limits(), Display(quiet=True))
    verdict = examine.examine(old, grown, out, *words)
    stored = json.loads((out.parent / "grown-run" / "verdict.json").read_text())
    page = (out.parent / "grown-run" / "verdict.html").read_text()
    assert stored["answer"] == verdict.answer and stored["limits"]["class_drop"] == 5
    assert verdict.safe is (blind is None)
    if blind is not None:
        assert verdict.look_at == ("dog",) and verdict.old[1].worst == "i3"
        assert "i3" in " ".join(verdict.reasons)
        assert page.index("dog: i3") < page.index(examine.MOST_CHANGED)
    else:
        assert f"<h2>{examine.LOOK_HERE}" not in page
    card = (out / "README.md").read_text()
    assert f"**{verdict.answer}**" in card and "`dog`" in card
    assert segue.load(out, "cpu").classes == NAMES, "the digest still holds"


def test_old_classes_that_are_seen_at_new_objects_alone_are_not_called_unseen(out: Path):
    """The old model takes the drawn birds for dogs, and sees no other dog and no cat."""
    old, grown = Model(Shades(3), NAMES[:3]), Model(Shades(4), NAMES)
    grown.save(out)
    verdict = examine.examine(old, grown, out, out.parent / "new", None, Limits(), Display(quiet=True))
    cat, dog = verdict.unknown
    assert (cat.left_out, dog.left_out, dog.pixels) == (0, 8 * 16 * 8, 0)
    (of_dog,), (of_cat,) = ([line for line in verdict.reasons if name in line] for name in ("dog", "cat"))
    assert verdict.answer == "look here first" and "touch" in of_dog and "no image" in of_cat
    stored = json.loads((out.parent / "grown-run" / "verdict.json").read_text())
    assert stored["unknown"][1] == {"name": "dog", "pixels": 0, "images": 0, "left_out": 1024}


def test_images_that_a_check_passes_over_are_counted(tmp_path: Path):
    for number in range(20):
        write(tmp_path, f"i{number}", (1, 2), False, NAMES[:3])
    old = Model(Shades(3), NAMES[:3])
    listed = examine.labelled_images(tmp_path, old)
    assert len(listed) == 20 and examine.passed_over(tmp_path, listed) == 0
    for kind in ("images", "masks"):  # without sub-folders a share is held out
        for file in (tmp_path / kind / "val").iterdir():
            file.rename(tmp_path / kind / file.name)
        (tmp_path / kind / "val").rmdir()
    guessed = examine.labelled_images(tmp_path, old)
    assert 0 < len(guessed) < 20 and examine.passed_over(tmp_path, guessed) == 20 - len(guessed)
    (tmp_path / "val.txt").write_text("\n".join(f"i{number}" for number in range(20)))
    everything = examine.labelled_images(tmp_path, old)
    assert len(everything) == 20 and examine.passed_over(tmp_path, everything) == 0
