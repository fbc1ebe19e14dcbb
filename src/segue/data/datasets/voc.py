"""PASCAL VOC 2012 in its original layout: JPEGImages, palette masks, ImageSets/Segmentation lists.

With SBD's SegmentationClassAug and train_aug.txt beside them, training uses those 10,582 images, as papers
do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from segue.core.classes import ClassTable, voc_palette
from segue.core.errors import UserError
from segue.data.datasets._files import FileDataset, Pair, data_root
from segue.data.datasets.base import DataSplit
from segue.data.layout import check_keys, read_lines

CLASSES = (
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow"),
    *(
        "diningtable",
        "dog",
        "horse",
        "motorbike",
        "person",
        "pottedplant",
        "sheep",
        "sofa",
        "train",
        "tvmonitor",
    ),
)
PALETTE = voc_palette(len(CLASSES) + 1)
COLOURS = {i: (PALETTE[3 * i], PALETTE[3 * i + 1], PALETTE[3 * i + 2]) for i in range(1, len(CLASSES) + 1)}


@dataclass(frozen=True)
class Config:
    root: str | None = None
    """the folder VOC2012, or one that holds VOCdevkit/VOC2012"""
    train_list: str = "auto"
    """a list in ImageSets/Segmentation; auto: train_aug if SegmentationClassAug is there too, else train"""
    skip: str | None = None
    """a list of files to leave out, written by `segue data check --skip-bad`"""


class Voc(FileDataset):
    """20 classes in alphabetical order, 0 background, 255 void."""

    Config = Config
    about = "PASCAL VOC 2012, 20 classes and background (data.root=FOLDER; SBD's extra masks when present)"
    protocol: ClassVar = {
        "model": {"backbone": "resnet101", "head": "deeplabv3", "output_stride": 16},
        "optim": {"lr_first": 0.01, "lr_next": 0.001},
        "train": {"epochs": 30, "batch_size": 24, "crop": 512, "scale": (0.5, 2.0)},
    }
    published = 10_582  # with SBD's extra masks
    published_steps: ClassVar = {
        "19-1 disjoint": (10034, 548),
        "19-1 overlapped": (10410, 548),
        "15-5 disjoint": (8437, 2145),
        "15-5 overlapped": (9568, 2145),
        "15-1 disjoint": (8437, 378, 299, 420, 500, 548),
        "15-1 overlapped": (9568, 487, 299, 491, 500, 548),
        "10-1 disjoint": (3706, 188, 868, 227, 201, 3247, 378, 299, 420, 500, 548),
        "10-1 overlapped": (6139, 528, 1177, 444, 482, 3898, 487, 299, 491, 500, 548),
    }
    classes = ClassTable("voc", dict(enumerate(CLASSES, start=1)), background=0, void=(255,), colours=COLOURS)

    def __init__(self, config: Config, split: DataSplit) -> None:
        root = find_root(data_root(config.root, "voc", "the folder VOC2012"))
        lists = root / "ImageSets" / "Segmentation"
        augmented = (root / "SegmentationClassAug").is_dir() and (lists / "train_aug.txt").is_file()
        name = config.train_list if config.train_list != "auto" else ("train_aug" if augmented else "train")
        uses_sbd = split == "train" and name == "train_aug"
        self._masks = root / ("SegmentationClassAug" if uses_sbd else "SegmentationClass")
        keys = read_list(lists / f"{name if split == 'train' else 'val'}.txt")
        images = root / "JPEGImages"
        pairs = (Pair(key, images / f"{key}.jpg", self._masks / f"{key}.png") for key in keys)
        super().__init__(pairs, split, config.skip)

    def mask_files(self) -> Iterable[Path]:
        return self._masks.glob("*.png")


def find_root(folder: Path) -> Path:
    """The VOC2012 folder itself, given it or one of its parents."""
    for candidate in (folder, folder / "VOC2012", folder / "VOCdevkit" / "VOC2012"):
        if (candidate / "JPEGImages").is_dir():
            return candidate
    raise UserError(
        f"{folder} is not a VOC 2012 folder: it holds neither JPEGImages nor VOCdevkit/VOC2012/JPEGImages."
        " Set data.root to the folder VOC2012."
    )


def read_list(path: Path) -> tuple[str, ...]:
    """The first word of each line, every one a plain file name without folder."""
    # SBD's lists name files ("/JPEGImages/x.jpg /SegmentationClassAug/x.png"), VOC's name ids.
    words = (line.split()[0] for line in read_lines(path))
    return check_keys([Path(word).stem if "/" in word else word for word in words], path)


DATASET = Voc
