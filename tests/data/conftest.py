"""A small VOC 2012 folder, written to disk."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from segue.core.classes import voc_palette

SIZE = (40, 30)
"""width, height"""


class VocFolder:
    """Writes a VOC 2012 folder; every image is a class on background with a void border."""

    def __init__(self, devkit: Path) -> None:
        self.root = devkit / "VOC2012"
        for folder in ("JPEGImages", "SegmentationClass", "ImageSets/Segmentation"):
            (self.root / folder).mkdir(parents=True)

    def image_path(self, key: str) -> Path:
        return self.root / "JPEGImages" / f"{key}.jpg"

    def mask_path(self, key: str, folder: str = "SegmentationClass") -> Path:
        return self.root / folder / f"{key}.png"

    def add(self, key: str, class_id: int, folder: str = "SegmentationClass") -> None:
        """An image of one class; each class has its own grey."""
        ids = self.mask(class_id)
        grey = np.where(ids == class_id, 10 * class_id, 250).astype(np.uint8)
        Image.fromarray(grey).convert("RGB").save(self.image_path(key), quality=95)
        self.mask_path(key, folder).parent.mkdir(exist_ok=True)
        write_mask(self.mask_path(key, folder), ids)

    @staticmethod
    def mask(class_id: int) -> np.ndarray:
        ids = np.zeros(SIZE[::-1], dtype=np.uint8)
        ids[5:25, 8:32] = 255
        ids[6:24, 9:31] = class_id
        return ids

    def write_list(self, name: str, lines: Iterable[str]) -> Path:
        path = self.root / "ImageSets" / "Segmentation" / f"{name}.txt"
        path.write_text("".join(f"{line}\n" for line in lines))
        return path


def write_mask(path: Path, ids: np.ndarray) -> None:
    """A palette PNG, as VOC has them."""
    image = Image.fromarray(ids)
    image.putpalette(voc_palette())
    image.save(path)


@pytest.fixture
def voc(tmp_path: Path) -> VocFolder:
    """Four training and three test images: VOCdevkit/VOC2012 below tmp_path."""
    folder = VocFolder(tmp_path / "VOCdevkit")
    train, test = (
        {"2007_1": 1, "2007_2": 20, "2007_3": 15, "2007_4": 8},
        {"2008_1": 3, "2008_2": 15, "2008_3": 9},
    )
    for key, class_id in {**train, **test}.items():
        folder.add(key, class_id)
    folder.write_list("train", train)
    folder.write_list("val", test)
    return folder
