"""The images of a step for a training loop of one's own: data set, scenario, step data, and no recipe."""

from __future__ import annotations

from typing import Any

from segue.core import plugins
from segue.core.config import validate
from segue.core.scenario import Scenario, Step
from segue.data.batches import StepData
from segue.data.datasets.base import DataSplit, SegDataset
from segue.data.index import class_index
from segue.data.transforms import test_transform, train_transform

SCALE = (0.5, 2.0)
"""area of a training crop as a share of the image, as in the benchmark: what is larger is drawn again"""


def open_dataset(name: str, split: DataSplit = "train", **settings: Any) -> SegDataset:
    """Images and masks of a data set by its name (`voc`, `folder`, `scenes`) or by its file (`mine.py`).

    `settings` are those of the recipe's section `data`: `root="VOCdevkit"`.

    Examples:
        >>> import segue
        >>> data = segue.open_dataset("scenes", "train", size=48, train=10)
        >>> len(data), data[0].image.shape, data.classes.names[1]
        (10, (48, 48, 3), 'barred disc')
    """
    kind: type[SegDataset] = plugins.find("dataset", name)
    return kind(validate(kind.Config, settings, "data"), split)


def step_data(
    dataset: SegDataset,
    scenario: Scenario,
    step: Step,
    crop: int,
    split: DataSplit = "train",
    scale: tuple[float, float] = SCALE,
) -> StepData:
    """The images that train or test a step, with its labels: a torch data set for any DataLoader.

    An item is an image (uint8, 3 x crop x crop), its labels (uint8, crop x crop; 255 is ignored) and its
    name. Images of training are cropped at random to a share `scale` of their area and flipped; those of a
    test are scaled and cropped in the centre. The first call reads all masks, later ones a cache.

    Examples:
        >>> import segue, torch
        >>> data = segue.open_dataset("scenes", "train", classes=3, size=48, train=40)
        >>> scenario = segue.make_scenario(data.classes, "2-1")
        >>> images = segue.step_data(data, scenario, scenario[1], crop=32)
        >>> batch, labels, names = next(iter(torch.utils.data.DataLoader(images, batch_size=4)))
        >>> batch.shape, labels.shape, sorted({0, 3} | set(labels.unique().tolist()))
        (torch.Size([4, 3, 32, 32]), torch.Size([4, 32, 32]), [0, 3])
    """
    images = scenario.select(step, class_index(dataset), split)
    transform = train_transform(crop, scale) if split == "train" else test_transform(crop)
    return StepData(dataset, images, scenario.label_table(step, split), transform)
