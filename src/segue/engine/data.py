"""The data of a run: which images train and test each step, and how they become batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    FixedViews,
    FrozenMaps,
    MixedOrder,
    RankSlice,
    ShuffledOrder,
    StepData,
)
from segue.data.datasets.base import SegDataset
from segue.data.exemplars import Exemplar, choose_exemplars
from segue.data.kept import Joined, KeptImages, choose_kept, kept_digest, open_kept
from segue.data.saliency import check_maps
from segue.data.transforms import CropOn, test_transform, train_transform
from segue.engine.build import build_scenario, index_classes, open_set
from segue.engine.images import chosen_by_name, step_images, step_problems
from segue.engine.processes import ALONE, Group
from segue.engine.seeds import derive_seed


@dataclass(frozen=True, kw_only=True)
class EvalData:
    """The images that test each step of a run, and how they become batches."""

    config: RunConfig
    scenario: Scenario
    test_set: SegDataset
    test_images: tuple[np.ndarray, ...]
    test_present: np.ndarray
    """class index of the test images"""
    rank_slice: RankSlice = WHOLE
    """slice of every global batch that this process has"""
    frozen: FrozenMaps | None = None
    """outputs of a network's frozen stages for test images, by their places in the test set"""

    def test_batches(self, step_index: int, device: torch.device) -> Batches:
        """The step's test images, once each, in order."""
        batch_size = self.config.train.batch_size if self._equal_sizes else 1
        places, frozen = self.test_images[step_index], self.frozen
        batches = self._ordered(self._test_data(step_index, places), device, batch_size)
        if frozen is None:
            return batches
        return replace(
            batches,
            frozen=lambda images_B3HW, views: frozen(images_B3HW, [(int(places[n]), 0) for n, _ in views]),
        )

    def sample_batches(self, images: np.ndarray, device: torch.device) -> Batches:
        """Some test images with the labels of the last step: one batch, or one each if their sizes differ."""
        data = self._test_data(len(self.scenario) - 1, images)
        return Batches(data, FixedOrder(len(data), len(data) if self._equal_sizes else 1), device)

    @property
    def _equal_sizes(self) -> bool:
        """Whether all test images come with the same size."""
        return self.config.test_size is not None

    def _ordered(self, data: StepData, device: torch.device, batch_size: int) -> Batches:
        order = FixedOrder(len(data), batch_size)
        return Batches(data, order, device, self.config.train.workers, rank_slice=self.rank_slice)

    def _test_data(self, step_index: int, images: np.ndarray) -> StepData:
        table = self.scenario.label_table(self.scenario[step_index], "test")
        return StepData(self.test_set, images, table, test_transform(self.config.test_size))


@dataclass(frozen=True, kw_only=True)
class Data(EvalData):
    """The data of a run: which images train and test each step, and how they become batches."""

    train_set: SegDataset
    train_keys: tuple[tuple[str, ...], ...]
    """names of the images that train each step; those of finished steps may be gone"""
    train_images: tuple[np.ndarray, ...]
    """places, in the training set, of those that are there"""
    train_present: np.ndarray
    """class index of the training images"""
    saliency: Path | None = None
    """folder of saliency maps that training batches hold"""
    kept: KeptImages | None = None
    """images of old classes from a folder of their own, shown again in the steps after those learned"""

    def with_saliency(self, folder: Path, first_step: int = 0) -> Data:
        """The same data with saliency maps, after checking that they are there from `first_step` on."""
        keys = [key for names in self.train_keys[first_step:] for key in names]
        keys += [] if self.kept is None else self.kept.keys
        check_maps(folder, dict.fromkeys(keys))
        return replace(self, saliency=folder)

    def train_batches(
        self, step_index: int, device: torch.device, start: int = 0, replay: ReplayConfig | None = None
    ) -> Batches:
        """The step's batches from iteration `start` on, with kept images and the exemplars of `replay`."""
        train, images = self.config.train, len(self.train_images[step_index])
        epochs, seed = train.epochs_of(step_index), (train.seed, step_index)
        exemplars = self.exemplars(step_index, replay.size) if replay is not None else ()
        order: ShuffledOrder | MixedOrder | FixedViews
        data = self._train_data(step_index, exemplars, self.kept)
        if shown_again := len(data) - images:
            share = replay.share if replay is not None else self.config.scenario.keep_share
            order = MixedOrder(images, shown_again, train.batch_size, share, epochs, seed)
        else:
            order = ShuffledOrder(images, train.batch_size, epochs, seed)
        if train.views:
            order = FixedViews(order, train.views, seed)
        return Batches(data, order, device, train.workers, start, self.rank_slice, train.accumulate)

    def exemplars(self, step_index: int, size: int) -> tuple[Exemplar, ...]:
        """The exemplars that are there when a step begins (one after the last: those that a run leaves)."""
        exemplars: tuple[Exemplar, ...] = ()
        for k in range(step_index):
            exemplars = self.exemplars_after(k, exemplars, size)
        return exemplars

    def exemplars_after(self, step_index: int, before: Sequence[Exemplar], size: int) -> tuple[Exemplar, ...]:
        """The exemplars that a step leaves, from those that were there when it began."""
        steps, seed = self.scenario[: step_index + 1], derive_seed(self.config.train.seed, step_index, 2)
        return choose_exemplars(before, self.train_images[step_index], steps, self.train_present, size, seed)

    def one_pass(self, step_index: int, device: torch.device) -> Batches | Gone:
        """Every training image of the step once, in order, augmented always in the same way."""
        names, there = self.train_keys[step_index], len(self.train_images[step_index])
        if there < len(names):
            return Gone(step_index, len(names) - there, len(names))
        return self._ordered(self._train_data(step_index), device, self.config.train.batch_size)

    def _train_data(
        self, step_index: int, exemplars: Sequence[Exemplar] = (), kept: KeptImages | None = None
    ) -> StepData:
        """The step's images with its labels, then exemplars with the labels of their own steps, then kept
        images with their own labels."""
        train, images, dataset = self.config.train, self.train_images[step_index], self.train_set
        table = self.scenario.label_table(self.scenario[step_index])
        if exemplars or kept is not None:
            tables = np.stack([self.scenario.label_table(step) for step in self.scenario[: step_index + 1]])
            steps = [step_index] * len(images) + [exemplar.step for exemplar in exemplars]
            images, table = np.append(images, [exemplar.image for exemplar in exemplars]), tables[steps]
            images = images.astype(np.int64)
        if kept is not None:
            images = np.append(images, len(dataset) + kept.images)
            table = np.append(table, kept.tables[[step_index] * len(kept.images)], axis=0)
            dataset = Joined(dataset, kept.dataset)
        transform = train_transform(train.crop, train.scale, self._crop_on(step_index))
        return StepData(dataset, images, table, transform, self.saliency)

    def _crop_on(self, step_index: int) -> CropOn | None:
        """What crops are placed on; of step 0, where all classes are new, nothing."""
        train, step = self.config.train, self.scenario[step_index]
        if train.crop_on == "none" or step.first:
            return None
        return CropOn(range(step.num_old, step.num_channels), train.crop_on_share)

    def manifest(self) -> dict:
        return make_manifest(self.scenario, self.train_keys)


@dataclass(frozen=True)
class Gone:
    """A pass over the images of a finished step that are not all there: whoever reads them is told."""

    step: int
    gone: int
    images: int

    def __iter__(self) -> Iterator[Batch]:
        raise UserError(
            f"The method reads the images of step {self.step}, but {self.gone} of {self.images} are gone."
            " Take a run of the very same method and settings, or bring the images back (data.root)."
        )


def build_data(
    config: RunConfig,
    display: Display,
    group: Group = ALONE,
    first_step: int = 0,
    stored: Sequence[Sequence[str]] = (),
) -> Data:
    """Open and check the data; raises before anything is trained or written.

    Steps before `first_step` are trained already: what they needed does not matter any more. `stored` names
    the images of steps as a run folder has them; those of trained steps may be gone.
    """
    train_set, hold_out = open_set(config, "train"), config.scenario.hold_out
    test_set = train_set if hold_out else open_set(config, "test")
    scenario, listed = build_scenario(config, train_set)
    trained = tuple(tuple(names) for names in stored[:first_step])
    if scenario.mode == "divided" and listed is None and len(stored) == len(scenario):
        listed = tuple(map(tuple, stored))  # what is gone would alter how the rest is shared among the steps
    unneeded = {key for names in trained for key in names}
    present = index_classes(train_set, "train", display, unneeded)
    train_images = step_images(scenario, listed, train_set.keys, present, hold_out, trained)
    learned = config.scenario.learned
    train_images = (*(images[:0] for images in train_images[:learned]), *train_images[learned:])
    keys = [tuple(train_set.keys[image] for image in images) for images in train_images]
    test_present = present if hold_out else index_classes(test_set, "test", display)
    test_images = _test_images(config, scenario, test_set, test_present)
    counts = [(len(train), len(test)) for train, test in zip(train_images, test_images, strict=True)]
    if problems := step_problems(config, scenario, counts, group, max(first_step, learned)):
        raise UserError(problems[0])
    _remark_on_tests(config, scenario, test_present[test_images[-1]].any(axis=0), display)
    needs_kept = config.scenario.keep is not None and first_step < len(scenario)
    return Data(
        config=config,
        scenario=scenario,
        train_set=train_set,
        test_set=test_set,
        train_keys=(*trained, *keys[len(trained) :]),
        train_images=train_images,
        test_images=test_images,
        train_present=present,
        test_present=test_present,
        rank_slice=group.rank_slice,
        kept=_kept_images(config, scenario, display) if needs_kept else None,
    )


def _kept_images(config: RunConfig, scenario: Scenario, display: Display) -> KeptImages:
    """The images of `scenario.keep`, if they are those that the recipe was made with."""
    wanted, names = config.scenario, scenario.classes.names
    if not wanted.learned or wanted.keep is None:
        raise UserError("scenario.keep goes with a model that is extended: segue extend MODEL DATA --keep.")
    dataset = open_kept(wanted.keep)
    present = index_classes(dataset, "kept", display)
    if kept_digest(dataset) != wanted.keep_digest:
        raise UserError(f"The images of {wanted.keep} have changed since the run began: bring them back.")
    old = [names[class_id] for class_id in scenario[wanted.learned].old]
    kept = choose_kept(dataset, present, scenario, old)
    if not len(kept.images):
        raise UserError(
            f"No training image of {wanted.keep} shows a class that the model knows: {', '.join(old)}."
        )
    return kept


def build_eval_data(config: RunConfig, display: Display) -> EvalData:
    """The images that test a run; those that trained it are not asked for."""
    hold_out = config.scenario.hold_out
    test_set = open_set(config, "train" if hold_out else "test")
    by_rule = replace(config, scenario=replace(config.scenario, manifest=None))  # it lists training images
    scenario, _ = build_scenario(by_rule, test_set)
    unneeded = set[str]()
    if hold_out:
        held_out = chosen_by_name(test_set.keys, hold_out)
        unneeded = {key for key, held in zip(test_set.keys, held_out, strict=True) if not held}
    present = index_classes(test_set, "test", display, unneeded)
    images = _test_images(config, scenario, test_set, present)
    return EvalData(
        config=config, scenario=scenario, test_set=test_set, test_images=images, test_present=present
    )


def _test_images(
    config: RunConfig, scenario: Scenario, dataset: SegDataset, present: np.ndarray
) -> tuple[np.ndarray, ...]:
    """The images that test each step: where images are held out, the test images play no part at all."""
    tested, hold_out = np.ones(len(dataset), dtype=bool), config.scenario.hold_out
    if hold_out:
        tested = chosen_by_name(dataset.keys, hold_out)
    tested &= np.arange(len(dataset)) % config.eval.thin == 0
    chosen = [scenario.select(step, present, "test") for step in scenario]
    found = [images[tested[images]] for images in chosen]
    return (*(_thinned(images, config.eval.between) for images in found[:-1]), found[-1])


def _thinned(images: np.ndarray, stride: int) -> np.ndarray:
    """Those at every so many-th place of the test set: later steps have them, too. Or the first alone."""
    some = images[images % stride == 0]
    return some if len(some) else images[:1]


def _remark_on_tests(config: RunConfig, scenario: Scenario, shown: np.ndarray, display: Display) -> None:
    """Say which new classes no test image shows."""
    names = scenario.classes.names
    expected = [class_id for step in scenario[config.scenario.learned :] for class_id in step.new]
    if unseen := [names[class_id] for class_id in expected if not shown[class_id]]:
        which = "held-out" if config.scenario.hold_out else "test"
        display.remark(f"No {which} image shows {', '.join(unseen)}: scores say nothing about such classes.")
