"""A predictor without torch whose answers follow from the pixels alone, and images for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from segue.deploy.predictor import Answer, answer_from
from segue.deploy.prepare import Preparation

COLOURS = ((232, 235, 236), (200, 0, 0), (0, 160, 0), (0, 0, 220))


class Brightness:
    """Background, grey or white as a pixel is black, grey or white; each pixel for itself."""

    def __init__(self, classes=("background", "grey", "white"), images: Preparation | None = None) -> None:
        self.classes, self.images = tuple(classes), images or Preparation()
        self.colours, self.digest = COLOURS[: len(classes)], f"brightness {classes}"
        self.batches: list[int] = []

    def answers(self, images: Sequence[np.ndarray]) -> list[Answer]:
        assert len({self.images.input_size(*image.shape[:2]) for image in images}) == 1
        self.batches.append(len(images))
        seen = [self.probabilities(self.images.resized(image)[None])[0] for image in images]
        return [
            answer_from(one, (image.shape[0], image.shape[1]))
            for one, image in zip(seen, images, strict=True)
        ]

    def probabilities(self, images_BHW3: np.ndarray) -> np.ndarray:
        grey = images_BHW3.mean(3, dtype=np.float32)[:, None] / 255
        levels = np.linspace(0, 1, len(self.classes), dtype=np.float32).reshape(1, -1, 1, 1)
        close = np.exp(-30 * np.abs(grey - levels))
        return close / close.sum(1, keepdims=True)


def photo(height: int = 30, width: int = 40, seed: int = 0) -> np.ndarray:
    """Blocks of ten pixels, each black, grey or white."""
    blocks = np.random.default_rng(seed).integers(0, 3, (-(-height // 10), -(-width // 10)))
    ids = blocks.repeat(10, 0).repeat(10, 1)[:height, :width]
    return np.repeat((ids * 127.5).astype(np.uint8)[..., None], 3, axis=2)


def truth(pixels: np.ndarray) -> np.ndarray:
    return (pixels[..., 0].astype(int) + 60) // 127


def save_photos(folder: Path, count: int = 3) -> list[np.ndarray]:
    folder.mkdir(parents=True, exist_ok=True)
    photos = [photo(30 + 10 * (number % 2), 40, number) for number in range(count)]
    for number, pixels in enumerate(photos):
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return photos


def read_ids(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image)
