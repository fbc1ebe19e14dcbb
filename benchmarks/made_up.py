"""Made-up files for benchmarks: a VOC 2012 folder of any size. Without torch, for the sake of processes."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from segue.core.classes import voc_palette
from segue.data.datasets.base import DataSplit, Sample, SegDataset
from segue.data.datasets.voc import Voc
from segue.data.image_files import FORMATS
from segue.data.images import Content, check_mask, read_mask

DIFFERENT = 64
"""pictures, of which files are written again and again"""


def write_voc(root: Path, images: int, width: int, height: int) -> None:
    """JPEG images and palette masks; every one is in both lists."""
    folders = [root / name for name in ("JPEGImages", "SegmentationClass", "ImageSets/Segmentation")]
    for folder in folders:
        folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    pairs = [_pair(rng, width, height) for _ in range(min(DIFFERENT, images))]
    keys = [f"2012_{number:06d}" for number in range(images)]
    for number, key in enumerate(keys):
        image, mask = pairs[number % len(pairs)]
        (folders[0] / f"{key}.jpg").write_bytes(image)
        (folders[1] / f"{key}.png").write_bytes(mask)
    for name in ("train", "val"):
        (folders[2] / f"{name}.txt").write_text("\n".join(keys))


def _pair(rng: np.random.Generator, width: int, height: int) -> tuple[bytes, bytes]:
    """Six regions with smooth borders, some of them classes; an image of blotches and noise."""
    fields = [_smooth(rng, width, height) for _ in range(6)]
    ids = rng.permutation([0, 0, 255, *rng.permutation(20)[:3] + 1]).astype(np.uint8)
    mask = Image.fromarray(ids[np.argmax(fields, axis=0)])
    mask.putpalette(voc_palette())
    colours = np.stack([_smooth(rng, width, height) for _ in range(3)], axis=2)
    colours = 255 * colours + rng.normal(0, 8, colours.shape)
    image = Image.fromarray(colours.clip(0, 255).astype(np.uint8))
    return _encoded(image, "JPEG", quality=90), _encoded(mask, "PNG")


def _smooth(rng: np.random.Generator, width: int, height: int) -> np.ndarray:
    grid = Image.fromarray(rng.random((9, 9)).astype(np.float32))
    return np.asarray(grid.resize((width, height), Image.Resampling.BICUBIC))


def _encoded(image: Image.Image, kind: str, **options: int) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


class Masks(SegDataset):
    """The masks of a VOC folder without their images: the class index's work on masks by itself."""

    classes = Voc.classes

    def __init__(self, config: Voc.Config, split: DataSplit) -> None:
        pairs = Voc(config, split).pairs
        self._keys, self.paths = tuple(pair.key for pair in pairs), tuple(pair.mask for pair in pairs)

    @property
    def keys(self) -> tuple[str, ...]:
        return self._keys

    def read(self, index: int) -> Sample:
        mask = read_mask(self.paths[index])
        return Sample(self.keys[index], np.zeros((*mask.shape, 3), np.uint8), mask)

    def check(self, index: int) -> Content:
        mask, name = read_mask(self.paths[index]), str(self.paths[index])
        return check_mask(mask, mask.shape, self.classes, name, name)

    def fingerprint(self) -> str:
        return "never kept"


def decode(paths: Sequence[Path]) -> int:
    """What PIL does at least; the number says that there were pixels."""
    pixels = 0
    for path in paths:
        with Image.open(path, formats=FORMATS) as image:
            pixels += np.asarray(image).size
    return pixels
