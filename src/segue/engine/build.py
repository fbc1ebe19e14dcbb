"""From a recipe to what a run needs: data sets, scenario, images of each step, method with model."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from segue.core import plugins
from segue.core.config import MemoryConfig, RunConfig, validate
from segue.core.errors import UserError
from segue.core.manifest import from_manifest, read_manifest
from segue.core.manifest import manifest as make_manifest
from segue.core.progress import Display
from segue.core.scenario import Scenario, Step, make_scenario
from segue.data.batches import WHOLE, Batch, Batches, BatchPlan, MixedPlan, OrderedPlan, Share, StepData
from segue.data.datasets.base import SegDataset
from segue.data.index import class_index
from segue.data.memory import Exemplar, choose_memory
from segue.data.saliency import check_maps
from segue.data.transforms import test_transform, train_transform
from segue.engine.processes import ALONE, Group
from segue.engine.runtime import derive_seed, seed_all
from segue.methods.base import Method
from segue.models.segmenter import Segmenter

DOCTOR = "segue data check --skip-bad FILE"


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
    share: Share = WHOLE
    """what this process has of every batch"""

    def with_saliency(self, folder: Path) -> Data:
        """The same data with saliency maps, after checking that they are there."""
        keys = self.train_set.keys
        check_maps(folder, (keys[image] for image in np.unique(np.concatenate(self.train_images))))
        return replace(self, saliency=folder)

    def train_batches(
        self, step_index: int, device: torch.device, start: int = 0, replay: MemoryConfig | None = None
    ) -> Batches:
        """The step's batches from iteration `start` on, with the exemplars that `replay` asks for."""
        train, images = self.config.train, len(self.train_images[step_index])
        epochs, seed = train.epochs_of(step_index), (train.seed, step_index)
        memory = self.memory(step_index, replay.size) if replay is not None else ()
        if replay is None or not memory:
            plan = BatchPlan(images, train.batch_size, epochs, seed)
        else:
            plan = MixedPlan(images, len(memory), train.batch_size, replay.share, epochs, seed)
        data = self._train_data(step_index, memory)
        return Batches(data, plan, device, train.workers, start, self.share, train.accumulate)

    def memory(self, step_index: int, size: int) -> tuple[Exemplar, ...]:
        """The exemplars that are there when a step begins (one after the last: those that a run leaves)."""
        memory: tuple[Exemplar, ...] = ()
        for k in range(step_index):
            steps, seed = self.scenario[: k + 1], derive_seed(self.config.train.seed, k, 2)
            memory = choose_memory(memory, self.train_images[k], steps, self.train_present, size, seed)
        return memory

    def one_pass(self, step_index: int, device: torch.device) -> Batches:
        """Every training image of the step once, in order, augmented always in the same way."""
        return self._ordered(self._train_data(step_index), device)

    def test_batches(self, step_index: int, device: torch.device) -> Batches:
        """The step's test images, once each, in order."""
        return self._ordered(self._test_data(step_index, self.test_images[step_index]), device)

    def _ordered(self, data: StepData, device: torch.device) -> Batches:
        plan = OrderedPlan(len(data), self.config.train.batch_size)
        return Batches(data, plan, device, self.config.train.workers, share=self.share)

    def sample_batch(self, images: np.ndarray, device: torch.device) -> Batch:
        """Some test images with the labels of the last step, as one batch."""
        data = self._test_data(len(self.scenario) - 1, images)
        return next(iter(Batches(data, OrderedPlan(len(data), len(data)), device)))

    def _train_data(self, step_index: int, memory: Sequence[Exemplar] = ()) -> StepData:
        """The step's images with its labels, then exemplars, each with the labels of its own step."""
        train, images = self.config.train, self.train_images[step_index]
        tables = np.stack([self.scenario.label_table(step) for step in self.scenario[: step_index + 1]])
        table = tables[step_index]
        if memory:
            steps = [step_index] * len(images) + [exemplar.step for exemplar in memory]
            images, table = np.append(images, [exemplar.image for exemplar in memory]), tables[steps]
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
    train_present, share = index_classes(train_set, "train", display), config.scenario.hold_out
    train_images = step_images(scenario, keys, train_set.keys, train_present, share)
    if share:  # the test images play no part at all
        test_set, test_present, tested = train_set, train_present, chosen_by_name(train_set.keys, share)
    else:
        test_present = index_classes(test_set, "test", display)
        tested = np.ones(len(test_set), dtype=bool)
    tested &= np.arange(len(test_set)) % config.eval.thin == 0
    test_images = (scenario.select(step, test_present, "test") for step in scenario)
    test_images = tuple(images[tested[images]] for images in test_images)
    counts = [(len(train), len(test)) for train, test in zip(train_images, test_images, strict=True)]
    if problems := step_problems(config, scenario, counts, group, first_step):
        raise UserError(problems[0])
    in_tests = test_present[test_images[-1]].any(axis=0)
    if unseen := [scenario.classes.names[each] for each in scenario[-1].seen if not in_tests[each]]:
        kind = "held-out" if share else "test"
        display.remark(f"No {kind} image shows {', '.join(unseen)}: scores say nothing about such classes.")
    return Data(
        config, scenario, train_set, test_set, train_images, test_images, train_present, test_present,
        share=group.share,
    )  # fmt: skip


def chosen_by_name(keys: Sequence[str], share: float) -> np.ndarray:
    """Which images belong to a share of all: the same in every step, whatever else there is."""
    # not the hash that parts a folder into training and test images: it would find none of its share again
    digests = (hashlib.blake2b(key.encode("utf-8", "surrogateescape"), digest_size=4) for key in keys)
    return np.array([int.from_bytes(digest.digest(), "big") < share * 2**32 for digest in digests])


def step_images(
    scenario: Scenario,
    listed: Sequence[Sequence[str]] | None,
    keys: Sequence[str],
    present: np.ndarray,
    hold_out: float = 0.0,
) -> tuple[np.ndarray, ...]:
    """The images, as places in `keys`, that train each step: those that a manifest lists, or by the rule,
    without those that are held out."""
    images = scenario.train_images(present) if listed is None else _listed_images(listed, keys)
    held_out = chosen_by_name(keys, hold_out)
    return tuple(each[~held_out[each]] for each in images) if hold_out else images


def _listed_images(listed: Sequence[Sequence[str]], keys: Sequence[str]) -> tuple[np.ndarray, ...]:
    position = {key: index for index, key in enumerate(keys)}
    if missing := [key for names in listed for key in names if key not in position]:
        raise UserError(
            f"The manifest names '{missing[0]}', which the data set lacks ({len(missing)} such images)."
            " Write it anew: segue scenario write."
        )
    return tuple(np.array([position[key] for key in names], dtype=np.int64) for names in listed)


def step_problems(
    config: RunConfig,
    scenario: Scenario,
    counts: Sequence[tuple[int, int]],
    group: Group = ALONE,
    first_step: int = 0,
) -> list[str]:
    """Why steps with so many training and test images cannot be trained, if so."""
    problems, held_out = [], config.scenario.hold_out
    for step, (train, test) in list(zip(scenario, counts, strict=True))[first_step:]:
        names = ", ".join(scenario.classes.names[class_id] for class_id in step.new)
        if train < 2:
            problems.append(
                f"Step {step.index} has {train} training images with its new classes ({names}) in mode"
                f" '{scenario.mode}'; it needs at least 2. Choose another split or mode"
                f"{', a smaller scenario.hold_out' if held_out else ''}, or add images."
            )
        elif problem := _batch_problem(config, step, min(config.train.batch_size, train), group):
            problems.append(problem)
        if test == 0:
            kind, remedy = ("held-out", " Hold out more: scenario.hold_out.") if held_out else ("test", "")
            problems.append(
                f"No {kind} image shows a class that is known at step {step.index} ({names}).{remedy}"
            )
    return problems


def _batch_problem(config: RunConfig, step: Step, batch: int, group: Group) -> str | None:
    """Why the smallest part of a batch is too small for batch norm, or to be shared by all processes."""
    parts = WHOLE.places(batch, config.train.accumulate)
    least = min(map(len, parts))
    norm_learns = step.first or config.train.norm == "batch"
    needed = 2 if norm_learns and not group.syncs_norm else 1
    if least >= max(needed * group.size, 2 if norm_learns else 1):
        return None
    if group.size == 1:
        return (
            f"train.accumulate={config.train.accumulate} leaves a part of one image (batches of {batch}"
            f" at step {step.index}), but batch norm needs at least 2. Choose a smaller train.accumulate."
        )
    split = f" in {len(parts)} parts" if len(parts) > 1 else ""
    reason = ", for batch norm" if needed == 2 else ""
    fixes = ["start fewer processes"]
    if batch == config.train.batch_size:
        fixes.append("choose a larger train.batch_size")
    if split:
        fixes.append("choose a smaller train.accumulate")
    return (
        f"{group.size} processes cannot share the batches of step {step.index}: {batch} images{split}"
        f" (train.batch_size={config.train.batch_size}), but each needs {needed} at a time{reason}."
        f" {', or '.join(fixes).capitalize()}."
    )


def open_sets(config: RunConfig) -> tuple[SegDataset, SegDataset]:
    """The training and the test images that a recipe names, not read yet."""
    kind: type[SegDataset] = plugins.find("dataset", config.scenario.dataset)
    options = validate(kind.Config, config.data, "data")
    return kind(options, "train"), kind(options, "test")


def build_method(config: RunConfig, device: torch.device, initial_weights: bool = True) -> Method:
    """The method with its model, not grown yet; the same weights for the same seed.

    Without `initial_weights` no pretrained ones are read: those of a checkpoint will take their place.
    """
    if config.train.compile and config.train.checkpointing:
        raise UserError("train.compile and train.checkpointing do not go together: choose one of them.")
    model = config.model
    pretrained = model.weights or model.pretrained or model.backbone == "tiny"  # there are no weights of it
    if initial_weights and model.frozen_stages and not pretrained:
        raise UserError(
            f"model.frozen_stages={model.frozen_stages} would freeze a network that has learned nothing: name"
            " its weights with model.weights=FILE, fetch them with model.pretrained=true, or set"
            " model.frozen_stages=0."
        )
    kind: type[Method] = plugins.find("method", config.method.name)
    params = validate(kind.Config, config.method.params, "method.params")
    seed_all(derive_seed(config.train.seed))
    structure = config.model if initial_weights else replace(config.model, weights=None, pretrained=False)
    method = kind(params, Segmenter(structure)).to(device)
    if config.train.channels_last:
        method = method.to(memory_format=torch.channels_last)
    if config.train.checkpointing:
        method.model.checkpoint()
    if config.train.compile:
        method.model.compile()
    return method


def build_scenario(
    config: RunConfig, dataset: SegDataset
) -> tuple[Scenario, tuple[tuple[str, ...], ...] | None]:
    """The scenario, and the images of its steps if a manifest lists them."""
    wanted = config.scenario
    offline = plugins.find("method", config.method.name).offline
    scenario = make_scenario(
        dataset.classes,
        wanted.split,
        wanted.mode,
        wanted.void,
        wanted.future,
        wanted.order,
        offline,
        orders=dataset.orders,
        divided_as=dataset.divided_as,
    )
    if wanted.manifest is None:
        return scenario, None
    listed, keys = from_manifest(read_manifest(wanted.manifest), dataset.classes, wanted.manifest)
    if offline and not listed.offline:  # all at once what the manifest gives step by step
        listed = replace(listed, offline=True)
        keys = (tuple(dict.fromkeys(key for step in keys for key in step)),)
    for name in ("groups", "mode", "void", "future", "offline"):
        ours, theirs = getattr(scenario, name), getattr(listed, name)
        if ours != theirs:
            raise UserError(
                f"The manifest {wanted.manifest} does not fit the recipe: its {name} is {theirs}, not {ours}."
            )
    return scenario, keys


def index_classes(dataset: SegDataset, split: str, display: Display) -> np.ndarray:
    """The class index of a data set, with a bar while it is read."""
    try:
        with display.bar(f"reading {split} masks", len(dataset)) as bar:
            return class_index(dataset, lambda done, _: bar.update(done))
    except UserError as error:
        raise UserError(f"{error}\nA list of all such files, to leave them out: {DOCTOR}") from error
