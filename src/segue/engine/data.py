"""The data of a run: which images train and test each step, and how they become batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from segue.core.config import ReplayConfig, RunConfig
from segue.core.errors import UserError
from segue.core.manifest import manifest as make_manifest
from segue.core.progress import Display
from segue.core.scenario import Scenario
from segue.data.batches import (
    WHOLE,
    Batch,
    Batches,
    FixedOrder,
    MixedOrder,
    RankSlice,
    ShuffledOrder,
    StepData,
)
from segue.data.datasets.base import SegDataset
from segue.data.exemplars import Exemplar, choose_exemplars
from segue.data.saliency import check_maps
from segue.data.transforms import test_transform, train_transform
from segue.engine.build import build_scenario, index_classes, open_sets
from segue.engine.images import chosen_by_name, step_images, step_problems
from segue.engine.processes import ALONE, Group
from segue.engine.runtime import derive_seed


@dataclass(frozen=True)
class Data:
    """The data of a run: which images train and test each step, and how they become batches."""

    config: RunConfig
    scenario: Scenario
    train_set: SegDataset
    test_set: SegDataset
    train_images: tuple[np.ndarray, ...]
    test_images: tuple[np.ndarray, ...]
    train_present: np.ndarray
    """class index of the training images"""
    test_present: np.ndarray
    """class index of the test images"""
    saliency: Path | None = None
    """folder of saliency maps that training batches hold"""
    rank_slice: RankSlice = WHOLE
    """slice of every global batch that this process has"""

    def with_saliency(self, folder: Path) -> Data:
        """The same data with saliency maps, after checking that they are there."""
        keys = self.train_set.keys
        check_maps(folder, (keys[image] for image in np.unique(np.concatenate(self.train_images))))
        return replace(self, saliency=folder)

    def train_batches(
        self, step_index: int, device: torch.device, start: int = 0, replay: ReplayConfig | None = None
    ) -> Batches:
        """The step's batches from iteration `start` on, with the exemplars that `replay` asks for."""
        train, images = self.config.train, len(self.train_images[step_index])
        epochs, seed = train.epochs_of(step_index), (train.seed, step_index)
        exemplars = self.exemplars(step_index, replay.size) if replay is not None else ()
        if replay is None or not exemplars:
            order = ShuffledOrder(images, train.batch_size, epochs, seed)
        else:
            order = MixedOrder(images, len(exemplars), train.batch_size, replay.share, epochs, seed)
        data = self._train_data(step_index, exemplars)
        return Batches(data, order, device, train.workers, start, self.rank_slice, train.accumulate)

    def exemplars(self, step_index: int, size: int) -> tuple[Exemplar, ...]:
        """The exemplars that are there when a step begins (one after the last: those that a run leaves)."""
        exemplars: tuple[Exemplar, ...] = ()
        for k in range(step_index):
            steps, seed = self.scenario[: k + 1], derive_seed(self.config.train.seed, k, 2)
            exemplars = choose_exemplars(
                exemplars, self.train_images[k], steps, self.train_present, size, seed
            )
        return exemplars

    def one_pass(self, step_index: int, device: torch.device) -> Batches:
        """Every training image of the step once, in order, augmented always in the same way."""
        return self._ordered(self._train_data(step_index), device)

    def test_batches(self, step_index: int, device: torch.device) -> Batches:
        """The step's test images, once each, in order."""
        return self._ordered(self._test_data(step_index, self.test_images[step_index]), device)

    def _ordered(self, data: StepData, device: torch.device) -> Batches:
        order = FixedOrder(len(data), self.config.train.batch_size)
        return Batches(data, order, device, self.config.train.workers, rank_slice=self.rank_slice)

    def sample_batch(self, images: np.ndarray, device: torch.device) -> Batch:
        """Some test images with the labels of the last step, as one batch."""
        data = self._test_data(len(self.scenario) - 1, images)
        return next(iter(Batches(data, FixedOrder(len(data), len(data)), device)))

    def _train_data(self, step_index: int, exemplars: Sequence[Exemplar] = ()) -> StepData:
        """The step's images with its labels, then exemplars, each with the labels of its own step."""
        train, images = self.config.train, self.train_images[step_index]
        tables = np.stack([self.scenario.label_table(step) for step in self.scenario[: step_index + 1]])
        table = tables[step_index]
        if exemplars:
            steps = [step_index] * len(images) + [exemplar.step for exemplar in exemplars]
            images, table = np.append(images, [exemplar.image for exemplar in exemplars]), tables[steps]
        transform = train_transform(train.crop, train.scale)
        return StepData(self.train_set, images, table, transform, self.saliency)

    def _test_data(self, step_index: int, images: np.ndarray) -> StepData:
        table = self.scenario.label_table(self.scenario[step_index], "test")
        return StepData(self.test_set, images, table, test_transform(self.config.train.crop))

    def manifest(self) -> dict:
        keys = self.train_set.keys
        return make_manifest(self.scenario, [[keys[i] for i in images] for images in self.train_images])


def build_data(config: RunConfig, display: Display, group: Group = ALONE, first_step: int = 0) -> Data:
    """Open and check the data; raises before anything is trained or written.

    Steps before `first_step` are trained already: what they needed does not matter any more.
    """
    train_set, test_set = open_sets(config)
    scenario, keys = build_scenario(config, train_set)
    train_present, hold_out = index_classes(train_set, "train", display), config.scenario.hold_out
    train_images = step_images(scenario, keys, train_set.keys, train_present, hold_out)
    learned = config.scenario.learned
    train_images = (*(images[:0] for images in train_images[:learned]), *train_images[learned:])
    if hold_out:  # the test images play no part at all
        test_set, test_present, tested = train_set, train_present, chosen_by_name(train_set.keys, hold_out)
    else:
        test_present = index_classes(test_set, "test", display)
        tested = np.ones(len(test_set), dtype=bool)
    tested &= np.arange(len(test_set)) % config.eval.thin == 0
    test_images = (scenario.select(step, test_present, "test") for step in scenario)
    test_images = tuple(images[tested[images]] for images in test_images)
    counts = [(len(train), len(test)) for train, test in zip(train_images, test_images, strict=True)]
    if problems := step_problems(config, scenario, counts, group, max(first_step, learned)):
        raise UserError(problems[0])
    in_tests = test_present[test_images[-1]].any(axis=0)
    names = scenario.classes.names
    expected = [class_id for step in scenario[learned:] for class_id in step.new]
    if unseen := [names[class_id] for class_id in expected if not in_tests[class_id]]:
        which = "held-out" if hold_out else "test"
        display.remark(f"No {which} image shows {', '.join(unseen)}: scores say nothing about such classes.")
    return Data(
        config, scenario, train_set, test_set, train_images, test_images, train_present, test_present,
        rank_slice=group.rank_slice,
    )  # fmt: skip
