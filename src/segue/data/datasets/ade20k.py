"""ADE20K as the scene parsing challenge of 2016 has it: ADEChallengeData2016 with images and annotations.

150 classes, and 0 for pixels that nobody labelled: background in training and left out of tests, as in MiB.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from segue.core.classes import ClassTable
from segue.core.errors import UserError
from segue.data.datasets._files import FileDataset, Pair, data_root
from segue.data.datasets.base import DataSplit

FOLDER = "ADEChallengeData2016"
SUBSETS = {"train": "training", "test": "validation"}

CLASSES = """
    wall, building, sky, floor, tree, ceiling, road, bed, windowpane, grass, cabinet, sidewalk,
    person, earth, door, table, mountain, plant, curtain, chair, car, water, painting, sofa, shelf,
    house, sea, mirror, rug, field, armchair, seat, fence, desk, rock, wardrobe, lamp, bathtub,
    railing, cushion, base, box, column, signboard, chest of drawers, counter, sand, sink,
    skyscraper, fireplace, refrigerator, grandstand, path, stairs, runway, case, pool table, pillow,
    screen door, stairway, river, bridge, bookcase, blind, coffee table, toilet, flower, book, hill,
    bench, countertop, stove, palm, kitchen island, computer, swivel chair, boat, bar,
    arcade machine, hovel, bus, towel, light, truck, tower, chandelier, awning, streetlight, booth,
    television, airplane, dirt track, apparel, pole, land, bannister, escalator, ottoman, bottle,
    buffet, poster, stage, van, ship, fountain, conveyer belt, canopy, washer, plaything,
    swimming pool, stool, barrel, basket, waterfall, tent, bag, minibike, cradle, oven, ball, food,
    step, tank, trade name, microwave, pot, animal, bicycle, lake, dishwasher, screen, blanket,
    sculpture, hood, sconce, vase, traffic light, tray, ashcan, fan, pier, crt screen, plate,
    monitor, bulletin board, shower, radiator, glass, clock, flag
""".replace("\n", " ").split(",")
"""the first synonym of each entry in objectInfo150; these are unique"""

# The second order of MiB's lists: the first fifty classes, the next fifty, then five times ten. It stands in
# MiB's table of tasks; its file order-b.txt holds another one, for which there are no lists.
ORDER_B = """
    1 9 14 18 22 24 25 27 28 29 32 38 42 45 46 47 48 49 54 56 58 61 62 63 69 74 75 76 77 81 82 84 90
    93 96 100 103 104 109 117 119 121 123 128 129 130 134 135 136 144
    3 5 6 8 10 12 13 19 21 23 26 31 33 34 36 39 40 43 44 53 55 57 60 70 71 80 86 87 91 95 99 101 105
    106 107 113 116 120 125 126 131 132 133 140 142 143 147 148 149 150
    11 16 50 64 66 73 89 92 145 146
    30 37 51 52 72 85 98 114 115 138
    2 35 65 97 110 111 112 118 124 141
    4 7 15 41 67 78 79 88 108 139
    17 20 59 68 83 94 102 122 127 137
"""

DIVIDE = (
    "VOC's rule gives other images than the published 'disjoint' lists of ADE20K, which divide the images"
    " among the steps. Use --mode divided."
)


@dataclass(frozen=True)
class Config:
    root: str | None = None
    """the folder ADEChallengeData2016, or the one that holds it"""
    skip: str | None = None
    """a list of files to leave out, written by `segue data check --skip-bad`"""


class Ade20k(FileDataset):
    """Classes 1 to 150; 0 is unlabelled, and there is no background."""

    Config = Config
    about = "ADE20K (scene parsing 2016), 150 classes (data.root=FOLDER)"
    protocol: ClassVar = {
        "scenario": {"mode": "divided"},
        "model": {"backbone": "resnet101", "head": "deeplabv3", "output_stride": 16},
        "optim": {"lr_first": 0.01, "lr_next": 0.001},
        "train": {"epochs": 60, "batch_size": 24, "crop": 512, "scale": (0.5, 2.0)},
    }
    published = 20_210
    published_steps: ClassVar = {
        "100-50 divided": (13452, 6744),
        "100-10 divided": (13452, 1130, 1200, 1366, 1550, 1498),
        "50-50 divided": (8219, 6384, 5593),
        "100-50 divided b": (10375, 9821),
        "100-10 divided b": (10375, 1362, 1346, 2084, 2609, 2420),
        "50-50 divided b": (6659, 7483, 6054),
        "100-50 overlapped": (20192, 9390),
        "100-10 overlapped": (20192, 1710, 2294, 2747, 4279, 2844),
        "50-50 overlapped": (20177, 13186, 9390),
    }
    classes = ClassTable(
        "ade20k",
        {class_id: name.strip() for class_id, name in enumerate(CLASSES, start=1)},
        background=None,
        void=(0,),
    )
    orders: ClassVar = {"a": tuple(range(1, 151)), "b": tuple(map(int, ORDER_B.split()))}
    divided_as: ClassVar = {"100-50": "100-10"}
    no_modes: ClassVar = {"disjoint": DIVIDE, "sequential": DIVIDE}

    def __init__(self, config: Config, split: DataSplit) -> None:
        root = find_root(data_root(config.root, "ade20k", f"the folder {FOLDER}"))
        images, self._masks = (root / kind / SUBSETS[split] for kind in ("images", "annotations"))
        for folder in (images, self._masks):
            if not folder.is_dir():
                raise UserError(f"The folder {folder} is missing: {root} is not complete.")
        # In order of name: published lists of indices count the files like this.
        files = sorted(path for path in images.glob("*.jpg") if not path.name.startswith("."))
        if not files:
            raise UserError(f"The folder {images} holds no .jpg image.")
        pairs = (Pair(path.stem, path, self._masks / f"{path.stem}.png") for path in files)
        super().__init__(pairs, split, config.skip)

    def mask_files(self) -> Iterable[Path]:
        return self._masks.glob("*.png")


def find_root(folder: Path) -> Path:
    """ADEChallengeData2016 itself, given it or its parent."""
    for candidate in (folder, folder / FOLDER):
        if (candidate / "images").is_dir() and (candidate / "annotations").is_dir():
            return candidate
    raise UserError(
        f"{folder} is not an ADE20K folder: neither it nor {folder / FOLDER} holds images and annotations."
        f" Set data.root to the folder {FOLDER}."
    )


DATASET = Ade20k
