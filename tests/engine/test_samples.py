"""Maps over a photo: what their colours say, and what the stored picture knows of its scale."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from segue.data.batches import Batch
from segue.engine.samples import overlay, write_predictions

GREY = Image.new("RGB", (8, 8), (100, 100, 100))


def colour(level: float) -> np.ndarray:
    """Red, green and blue of a map that is equal everywhere, over grey."""
    return np.asarray(overlay(GREY, np.full((2, 2), level)))[4, 4].astype(int)


def test_overlay_is_warm_where_the_map_is_high_and_blue_where_it_is_negative():
    for level in (0.5, 0.75, 1.0):
        red, _, blue = colour(level)
        assert red > blue and red > 140, "warm"
        cold_red, _, cold_blue = colour(-level)
        assert cold_blue > cold_red and cold_blue > 140, "blue"
    assert colour(1.0).sum() > colour(0.75).sum() > colour(0.5).sum(), "brighter towards the end"
    assert colour(-1.0).sum() > colour(-0.75).sum() > colour(-0.5).sum()


def test_overlay_is_near_the_photo_at_zero():
    rng = np.random.default_rng(0)
    photo = Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8))
    zero, high = (np.asarray(overlay(photo, np.full((2, 2), level))).astype(int) for level in (0.0, 1.0))
    plain = np.asarray(photo).astype(int)
    assert np.abs(zero - plain).max() <= 0.25 * 255 + 1, "three quarters of the photo are left"
    assert np.corrcoef(zero.ravel(), plain.ravel())[0, 1] > 0.99
    assert np.abs(high - plain).mean() > 2 * np.abs(zero - plain).mean()


def test_overlay_has_the_size_of_the_photo_and_the_places_of_the_map():
    photo = Image.new("RGB", (12, 6), (100, 100, 100))
    mixed = np.asarray(overlay(photo, np.array([[1.0, -1.0]]))).astype(int)
    assert mixed.shape == (6, 12, 3)
    assert mixed[3, 0, 0] > mixed[3, 0, 2] and mixed[3, -1, 2] > mixed[3, -1, 0]


class Painter:
    """Predicts background, and looks where it is told to."""

    def __init__(self, maps: dict[str, torch.Tensor]) -> None:
        self.maps = maps

    def eval(self) -> None:
        pass

    def predict(self, images: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(images), 2, *images.shape[-2:])

    def attention_maps(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        return self.maps


@pytest.mark.parametrize("scale", [1e-3, 1.0, 40.0])
def test_maps_use_their_whole_scale_and_attention_says_its_end(tmp_path, scale):
    two = scale * torch.tensor([[[0.0, 0.5], [1.0, -0.25]], [[0.0, -2.0], [1.0, 0.0]]])
    images = torch.full((2, 3, 16, 16), 100, dtype=torch.uint8)
    batch = Batch(images, torch.zeros(2, 16, 16), ["a", "b"])
    write_predictions(tmp_path, Painter({"energy": two, "attention": two}), [batch], step=3)
    for number, peak in enumerate((1.0, 2.0)):
        photo = Image.new("RGB", (16, 16), (100, 100, 100))
        expected = np.asarray(overlay(photo, (two[number] / (peak * scale)).numpy()))
        notes = {}
        for name in ("energy", "attention"):
            with Image.open(tmp_path / str(number) / f"step3-{name}.png") as picture:
                assert np.abs(np.asarray(picture).astype(int) - expected).max() <= 1
                notes[name] = picture.info.get("peak")
        assert notes == {"energy": None, "attention": f"{peak * scale:.2g}"}


def test_map_of_zeros_is_drawn(tmp_path):
    batch = Batch(torch.full((1, 3, 8, 8), 100, dtype=torch.uint8), torch.zeros(1, 8, 8), ["a"])
    write_predictions(tmp_path, Painter({"attention": torch.zeros(1, 2, 2)}), [batch], step=0)
    with Image.open(tmp_path / "0" / "step0-attention.png") as picture:
        assert (np.asarray(picture)[4, 4] == colour(0.0)).all() and picture.info["peak"] == "0"
