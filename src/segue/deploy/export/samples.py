"""Images that a smaller file is calibrated on and measured with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from segue.core.errors import UserError
from segue.data.image_files import BadFile
from segue.data.images import read_image
from segue.data.layout import IMAGE_SUFFIXES
from segue.deploy.export.pictures import SHAPES, picture
from segue.deploy.folder_images import folder_images
from segue.deploy.verdict import channel_table

MOST = 64
"""images that are calibrated on, and images that are measured with, at most"""


@dataclass(frozen=True)
class Samples:
    """Pixels, uint8, height x width x 3."""

    calibrate: tuple[np.ndarray, ...]
    measure: tuple[np.ndarray, ...]
    """images that were not calibrated on, unless there is one alone"""
    truth: tuple[np.ndarray, ...] | None
    """label of each pixel of the measured images: a channel or 255; None: not known"""
    what: str
    """the measured images in words"""


def generated() -> Samples:
    """Pictures where nobody gave any: enough to compare two files, not to score them."""
    pictures = tuple(np.ascontiguousarray(each.transpose(1, 2, 0)) for each in picture(SHAPES[0], 7))
    return Samples((), pictures, None, "on generated pictures: name a folder with --images for real ones")


def read_samples(folder: str | Path, classes: Sequence[str], bits: int) -> Samples:
    """From a data set folder with classes.txt (docs/own-data.md), or from a folder of images alone."""
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"There is no folder {folder}: --images names one with images.")
    return _labelled(folder, classes) if (folder / "classes.txt").is_file() else _bare(folder, bits)


def _labelled(folder: Path, classes: Sequence[str]) -> Samples:
    train, test = folder_images(folder, "train"), folder_images(folder, "test")
    table = channel_table(test.classes, classes)
    seen = [train.read(index).image for index in range(min(MOST, len(train)))]
    measured = [test.read(index) for index in range(min(MOST, len(test)))]
    if not seen or not measured:
        raise UserError(f"{folder} has {len(train)} images for training and {len(test)} for testing.")
    images = tuple(sample.image for sample in measured)
    truth = tuple(table[sample.mask] for sample in measured)
    return Samples(tuple(seen), images, truth, f"on {len(images)} test images of {folder}")


def _bare(folder: Path, bits: int) -> Samples:
    """Every second image is for calibration, the others are measured with."""
    files = (path for path in sorted(folder.rglob("*")) if path.suffix.lower() in IMAGE_SUFFIXES)
    images = []
    for path in islice(files, 2 * MOST):
        try:
            images.append(read_image(path, bits))
        except BadFile:
            continue  # other images will do
    if not images:
        raise UserError(f"{folder} has no image that can be read.")
    measure = tuple(images[1::2] or images)
    return Samples(tuple(images[::2]), measure, None, f"on {len(measure)} images of {folder}")
