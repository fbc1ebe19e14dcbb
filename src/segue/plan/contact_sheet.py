"""`segue data show`: a few images of a step, spread over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

import numpy as np

from segue.core.config import RunConfig
from segue.core.errors import UserError, suggest
from segue.core.progress import Display
from segue.core.scenario import Step
from segue.data.datasets.base import SegDataset
from segue.engine.build import index_classes
from segue.engine.data import Data, build_data
from segue.plan.checkup import unused_sets
from segue.report.contact import make_card, write_contact_sheet


def show_data(config: RunConfig, index: int, part: str, count: int, out: Path, display: Display) -> Path:
    """Write a contact sheet of a step: images that show its new classes in turn."""
    data = build_data(config, display)
    if not 0 <= index < len(data.scenario):
        raise UserError(f"There is no step {index}: the split has steps 0 to {len(data.scenario) - 1}.")
    step, scenario = data.scenario[index], data.scenario
    dataset, images, present = _part(data, step, part, display)
    labels = "train" if dataset is data.train_set and part != "test" else "test"
    chosen = spread_over_classes(step.new, present, images, count)
    if labels == "test":  # old classes are tested too
        old = spread_over_classes(step.old, present, images, count)
        chosen = list(dict.fromkeys([*chosen, *old]))[:count]
    samples = (dataset.read(image) for image in chosen)
    cards = [make_card(scenario, step, labels, each.key, each.image, each.mask) for each in samples]
    return write_contact_sheet(out, scenario, step, labels, cards, len(images))


def _part(data: Data, step: Step, part: str, display: Display) -> tuple[SegDataset, np.ndarray, np.ndarray]:
    """The images of a part that belong to a step, and its class index.

    A part is called as its list is: `val` are the test images of most folders, and `test` the third list if
    there is one. Where nothing is called so, `train` and `test` are what a run trains and tests on.
    """
    config, k = data.config, step.index
    train = (data.train_set, data.train_images[k], data.train_present)
    test = (data.test_set, data.test_images[k], data.test_present)
    parts = {"train": train, "test": test}
    for split, name in ((each, getattr(config.data, each, None)) for each in ("test", "train")):
        if isinstance(name, str):  # of generated data it is a number of images
            parts[name] = parts[split]
    unused, _ = unused_sets(config, (data.train_set, data.test_set))
    if part in unused:
        dataset = unused[part]
        present = index_classes(dataset, part, display)
        return dataset, data.scenario.select(step, present, "test"), present
    if part not in parts:
        raise UserError(f"There is no part '{part}'.{suggest(part, [*parts, *unused])}")
    return parts[part]


def spread_over_classes(
    classes: Sequence[int], present: np.ndarray, images: np.ndarray, count: int
) -> list[int]:
    """Up to `count` images: one of each class, then another of each, ..., from all over the set."""
    per_class = [images[present[images, class_id]] for class_id in classes]
    spread = [each[spread_order(len(each))] for each in per_class]
    rounds = (int(image) for row in zip_longest(*spread) for image in row if image is not None)
    return list(dict.fromkeys(rounds))[:count]


def spread_order(count: int) -> np.ndarray:
    """Places 0 ... count - 1 in an order whose every beginning lies all over them: first, middle, quarters,
    ... (by the bits of a place, read backwards)."""
    bits = max(count - 1, 1).bit_length()
    grid = [int(f"{place:0{bits}b}"[::-1], 2) for place in range(2**bits)]
    return np.array([place for place in grid if place < count], dtype=np.int64)
