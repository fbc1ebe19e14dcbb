"""Saliency maps from files: cropped and flipped with their images, checked before anything is trained."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from segue.core.errors import UserError
from segue.core.progress import Display
from segue.engine.data import build_data
from segue.engine.recipe import resolve
from segue.engine.run import run

CPU = torch.device("cpu")
WORDS = [
    *(
        "data.classes=3",
        "data.size=32",
        "data.train=40",
        "data.test=4",
        "train.crop=32",
        "train.batch_size=4",
    ),
    *("train.epochs=1", "eval.samples=0", "train.accumulate=2"),
]


def recipe(*words: str):
    return resolve("ssul", "scenes", "2-1", overrides=[*WORDS, *words])


def write_maps(folder: Path, keep: int | None = None) -> Path:
    """Maps in which an image's own mask is salient."""
    dataset = build_data(recipe(), Display(quiet=True)).train_set
    folder.mkdir()
    for index in range(len(dataset))[:keep]:
        sample = dataset.read(index)
        Image.fromarray((sample.mask > 0).astype(np.uint8) * 255).save(folder / f"{sample.key}.png")
    return folder


def test_maps_go_with_their_images(tmp_path: Path) -> None:
    data = build_data(recipe("scenario.mode=sequential"), Display(quiet=True))
    data = data.with_saliency(write_maps(tmp_path / "maps"))
    for batch in data.train_batches(1, CPU):
        assert batch.salient is not None and batch.salient.dtype == torch.bool
        # at the last step of mode sequential every class is labelled
        assert torch.equal(batch.salient, batch.labels > 0)
        parts = batch.split(2)
        assert torch.equal(torch.cat([part.salient for part in parts]), batch.salient)


def test_no_maps_by_default() -> None:
    batch = next(iter(build_data(recipe(), Display(quiet=True)).train_batches(0, CPU)))
    assert batch.salient is None


def test_maps_change_the_run(tmp_path: Path) -> None:
    maps = write_maps(tmp_path / "maps")
    with_maps = run(recipe(f"method.params.saliency={maps}"), tmp_path / "a", display=Display(quiet=True))
    without = run(recipe(), tmp_path / "b", display=Display(quiet=True))
    assert with_maps.finished
    assert with_maps.steps[0].losses != without.steps[0].losses


def test_missing_map_is_named_before_training(tmp_path: Path) -> None:
    maps = write_maps(tmp_path / "maps", keep=30)
    with pytest.raises(UserError, match=r"saliency map .*train-000\d\d\.png is missing \(\d+ of them\)"):
        run(recipe(f"method.params.saliency={maps}"), tmp_path / "run", display=Display(quiet=True))
    assert not (tmp_path / "run").exists()


def test_map_of_another_size_is_named(tmp_path: Path) -> None:
    maps = write_maps(tmp_path / "maps")
    for path in maps.iterdir():
        Image.new("L", (8, 16)).save(path)
    with pytest.raises(UserError, match=r"is 8 x 16 pixels, but its image is 32 x 32"):
        run(recipe(f"method.params.saliency={maps}"), tmp_path / "run", display=Display(quiet=True))


@pytest.mark.parametrize("bad", ["colour", "empty", "nowhere"])
def test_bad_maps_are_named_before_training(bad: str, tmp_path: Path) -> None:
    maps = write_maps(tmp_path / "maps")
    last = max(maps.iterdir())
    if bad == "colour":
        Image.new("RGB", (32, 32)).save(last)
    elif bad == "empty":
        last.write_bytes(b"")
    words = {
        "colour": f"{last} is of mode RGB",
        "empty": f"{last} is not an image",
        "nowhere": "There is no folder",
    }
    folder = tmp_path / "gone" if bad == "nowhere" else maps
    with pytest.raises(UserError, match=words[bad]):
        run(recipe(f"method.params.saliency={folder}"), tmp_path / "run", display=Display(quiet=True))
    assert not (tmp_path / "run").exists()
