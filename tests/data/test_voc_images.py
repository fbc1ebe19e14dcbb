"""The real VOC 2012 (train and val, longest side 256 px) in the folder $SEGUE_VOC_ROOT: run with -m data."""

import os

import numpy as np
import pytest

from segue.data.datasets.voc import Config, Voc
from segue.data.index import class_index

pytestmark = [
    pytest.mark.data,
    pytest.mark.skipif("SEGUE_VOC_ROOT" not in os.environ, reason="SEGUE_VOC_ROOT is not set"),
]

IMAGES = {"train": 1464, "test": 1449}
IMAGES_PER_CLASS = {
    "aeroplane": (88, 90),
    "bottle": (87, 96),
    "cat": (131, 119),
    "chair": (148, 123),
    "diningtable": (82, 75),
    "person": (442, 446),
    "sheep": (63, 57),
    "tvmonitor": (83, 74),
}
"""training and test images that show a class"""


@pytest.mark.parametrize("split", IMAGES)
def test_images_per_class(split: str) -> None:
    dataset = Voc(Config(root=os.environ["SEGUE_VOC_ROOT"], train_list="train"), split)
    assert len(dataset) == IMAGES[split]
    present = class_index(dataset)
    counts = dict(zip(dataset.classes.names.values(), present[:, 1:21].sum(0).tolist(), strict=True))
    column = list(IMAGES).index(split)
    assert {name: counts[name] for name in IMAGES_PER_CLASS} == {
        name: both[column] for name, both in IMAGES_PER_CLASS.items()
    }
    assert set(np.flatnonzero(present.any(0)).tolist()) == {*range(21), 255}


def test_an_image_and_its_mask() -> None:
    sample = Voc(Config(root=os.environ["SEGUE_VOC_ROOT"], train_list="train"), "train").read(0)
    assert sample.image.shape == (*sample.mask.shape, 3) and max(sample.mask.shape) == 256
    assert sample.key == "2007_000032" and set(np.unique(sample.mask).tolist()) >= {0, 1, 255}
