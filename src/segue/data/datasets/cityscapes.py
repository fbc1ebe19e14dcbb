"""Cityscapes in its original layout: leftImg8bit/PART/CITY and the fine annotations in gtFine/PART/CITY.

The 19 classes of its benchmark, under the numbers 0 to 18 that it trains with. There is no background, and 0
is a class (road). Masks of 34 raw labels (labelIds) are translated; labelTrainIds serve where those are
absent. CAF has no protocol for Cityscapes: the values here are those of VOC, but void pixels (the bonnet of
the car, the frame of the image) are ignored, since no later step will ever name them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from segue.core.classes import IGNORE, ClassTable
from segue.core.errors import UserError
from segue.data.datasets._files import FileDataset, Pair, data_root
from segue.data.datasets.base import DataSplit

HOLDS = "leftImg8bit and gtFine"
SUBSETS = {"train": "train", "test": "val"}
IMAGE_END = "_leftImg8bit.png"
RAW_END, TRAIN_END = "_gtFine_labelIds.png", "_gtFine_labelTrainIds.png"

RAW_LABELS = 34
CLASSES = {
    **{7: "road", 8: "sidewalk", 11: "building", 12: "wall", 13: "fence", 17: "pole"},
    **{19: "traffic light", 20: "traffic sign", 21: "vegetation", 22: "terrain", 23: "sky"},
    **{24: "person", 25: "rider", 26: "car", 27: "truck", 28: "bus", 31: "train"},
    **{32: "motorcycle", 33: "bicycle"},
}
"""raw label -> name, in the order of the class ids"""
COLOURS = (
    *((128, 64, 128), (244, 35, 232), (70, 70, 70), (102, 102, 156), (190, 153, 153), (153, 153, 153)),
    *((250, 170, 30), (220, 220, 0), (107, 142, 35), (152, 251, 152), (70, 130, 180)),
    *((220, 20, 60), (255, 0, 0), (0, 0, 142), (0, 0, 70), (0, 60, 100), (0, 80, 100)),
    *((0, 0, 230), (119, 11, 32)),
)
"""colours of the classes, as the benchmark has them"""


def class_ids_of_raw_labels() -> np.ndarray:
    """Raw labels that are no class of the benchmark are void; so is 255, which is how -1 is stored."""
    ids = np.full(256, -1)
    ids[[*range(RAW_LABELS), 255]] = IGNORE
    ids[list(CLASSES)] = range(len(CLASSES))
    return ids


@dataclass(frozen=True)
class Config:
    root: str | None = None
    """the folder that holds leftImg8bit and gtFine"""
    skip: str | None = None
    """a list of files to leave out, written by `segue data check --skip-bad`"""


class Cityscapes(FileDataset):
    """Classes 0 to 18, 255 void, no background."""

    Config = Config
    about = "Cityscapes, 19 classes, fine annotations (data.root=FOLDER)"
    protocol: ClassVar = {
        "scenario": {"void": "ignore"},
        "model": {"backbone": "resnet101", "head": "deeplabv3", "output_stride": 16},
        "optim": {"lr_first": 0.01, "lr_next": 0.001},
        "train": {"epochs": 30, "batch_size": 24, "crop": 512, "scale": (0.5, 2.0)},
    }
    published = 2_975
    classes = ClassTable(
        "cityscapes",
        dict(enumerate(CLASSES.values())),
        background=None,
        void=(IGNORE,),
        colours=dict(enumerate(COLOURS)),
    )

    def __init__(self, config: Config, split: DataSplit) -> None:
        root, subset = data_root(config.root, "cityscapes", f"the one with {HOLDS}"), SUBSETS[split]
        images, self._masks = root / "leftImg8bit" / subset, root / "gtFine" / subset
        for folder in (images.parent, self._masks.parent, images, self._masks):
            if not folder.is_dir():
                raise UserError(f"The folder {folder} is missing. Set data.root to the one with {HOLDS}.")
        raw = any(self._masks.glob(f"*/*{RAW_END}"))
        self._end = TRAIN_END if not raw and any(self._masks.glob(f"*/*{TRAIN_END}")) else RAW_END
        self.class_ids = class_ids_of_raw_labels() if self._end == RAW_END else None
        files = sorted(images.glob(f"*/[!.]*{IMAGE_END}"), key=lambda path: path.name)
        if not files:
            raise UserError(f"The folder {images} holds no CITY/*{IMAGE_END}.")
        super().__init__((self._pair(path) for path in files), split, config.skip)

    def _pair(self, image: Path) -> Pair:
        key = image.name.removesuffix(IMAGE_END)
        return Pair(key, image, self._masks / image.parent.name / f"{key}{self._end}")

    def mask_files(self) -> Iterable[Path]:
        return self._masks.glob(f"*/*{self._end}")


DATASET = Cityscapes
