"""From a recipe to its data sets, scenario and method."""

from __future__ import annotations

import copy
from collections.abc import Container
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from segue.core import plugins
from segue.core.config import ModelConfig, RunConfig
from segue.core.errors import UserError
from segue.core.machine import CLEARLY, free_memory
from segue.core.manifest import from_manifest, read_manifest
from segue.core.progress import Display
from segue.core.scenario import Scenario
from segue.data.datasets.base import DataSplit, SegDataset
from segue.data.index import cache_folder, class_index
from segue.engine.scenario import scenario_of
from segue.engine.seeds import derive_seed, seed_all
from segue.methods.base import Method
from segue.models.adopted.grow import AdoptedClassifier
from segue.models.build import build_network
from segue.models.classifier import GrowingClassifier, RidgeClassifier
from segue.models.network import Network
from segue.models.twins import Twins

DOCTOR = "segue data check --skip-bad FILE"


def open_sets(config: RunConfig) -> tuple[SegDataset, SegDataset]:
    """The training and the test images that a recipe names, not read yet."""
    return open_set(config, "train"), open_set(config, "test")


def open_set(config: RunConfig, split: DataSplit) -> SegDataset:
    """The images of one split alone: those of the other may be gone."""
    check_data_fits(config)
    kind: type[SegDataset] = plugins.find("dataset", config.scenario.dataset)
    return kind(config.data, split)


def check_data_fits(config: RunConfig) -> None:
    """Refuse a data set whose settings ask for more memory than there is."""
    kind: type[SegDataset] = plugins.find("dataset", config.scenario.dataset)
    need, free = kind.own_memory(config.data), free_memory()
    if free is not None and need > CLEARLY * free:
        raise UserError(
            f"The data set {config.scenario.dataset} would need about {need / 2**30:,.0f} GiB of memory by"
            f" itself, but {free / 2**30:.1f} GiB are free: lower the numbers of its section data."
        )


def check_weights(model: ModelConfig) -> None:
    """A network that begins with random weights has to be meant, and none of it can be frozen."""
    if model.backbone == "tiny" or model.weights or model.pretrained:  # there are no weights of tiny
        return
    if model.pretrained is None and model.network is not None:
        raise UserError(
            f"Where do the weights of {model.backbone} come from? From a folder of its library:"
            " model.network=hf:FOLDER. From a file with those of the network or of its encoder:"
            " model.weights=FILE. An encoder that smp downloads: model.pretrained=true. From nothing, which"
            " needs many images and epochs: model.pretrained=false."
        )
    if model.pretrained is None:
        raise UserError(
            f"Where do the weights of {model.backbone} come from? From a file: model.weights=FILE. From the"
            " hub of timm, which downloads them: model.pretrained=true. From nothing, which needs many images"
            " and epochs: model.pretrained=false."
        )
    if model.frozen_stages:
        raise UserError(
            f"model.frozen_stages={model.frozen_stages} would freeze a network that has learned nothing: name"
            " its weights with model.weights=FILE, fetch them with model.pretrained=true, or set"
            " model.frozen_stages=0."
        )


def build_method(
    config: RunConfig, device: torch.device, initial_weights: bool = True, module: nn.Module | None = None
) -> Method:
    """The method with its model, not grown yet; the same weights for the same seed.

    Without `initial_weights` no pretrained ones are read: those of a checkpoint will take their place.
    `module` is the user's own, for a network that no recipe can build; it is copied.
    """
    if config.train.compile and config.train.checkpointing:
        raise UserError("train.compile and train.checkpointing do not go together: choose one of them.")
    if config.train.compile and config.train.cache_frozen:
        raise UserError("train.compile and train.cache_frozen do not go together: choose one of them.")
    kind: type[Method] = plugins.find("method", config.method.name)
    seed_all(derive_seed(config.train.seed))
    structure = config.model if initial_weights else replace(config.model, weights=None, pretrained=False)
    network = build_network(structure, copy.deepcopy(module))
    if initial_weights:
        check_weights(config.model)  # a backbone that there is not was named first
    _check_crop(config, network)
    method = kind(config.method.params, network)
    _check_double(config, method, device)
    method = method.to(device)
    method.new_start = config.method.start
    _check_start(config, network)
    _check_fuse(config, method)
    if config.train.channels_last:
        method = method.to(memory_format=torch.channels_last)
    if config.train.checkpointing:
        method.model.checkpoint()
    if config.train.compile:
        method.model.compile()
    return method


def _check_double(config: RunConfig, method: Method, device: torch.device) -> None:
    """A method that keeps sums in double precision has no place on MPS, which lacks it."""
    tensors = (value for value in method.state_dict().values() if torch.is_tensor(value))
    if device.type == "mps" and any(value.dtype == torch.float64 for value in tensors):
        raise UserError(
            f"{config.method.name} needs double precision, which MPS does not have: choose --device cpu."
        )


def _check_start(config: RunConfig, network: Network) -> None:
    """Only rows beside those of background can begin like it; NeST's composition knows Segue's own ones."""
    start, classifier = config.method.start, network.classifier
    adopted = isinstance(classifier, AdoptedClassifier) and not network.closed and start != "similar"
    if start != "own" and not adopted and not isinstance(classifier, GrowingClassifier):
        raise UserError(
            f"method.start={start} begins new classifiers like background, which the classifiers of"
            f" {config.method.name} in {config.model.backbone} cannot: leave method.start out."
        )


def _check_fuse(config: RunConfig, method: Method) -> None:
    """Weights of two steps can be averaged only if they mean the same in both."""
    if config.method.fuse == "none":
        return
    if any(isinstance(module, Twins) for module in method.model.modules()):
        raise UserError(
            f"method.fuse={config.method.fuse} averages the weights of two steps, but RCIL merges its twins"
            " in between, so that the same weight is another: leave method.fuse out, or use RCIL's losses"
            " alone, method.params.branches=none."
        )
    if isinstance(method.model.classifier, RidgeClassifier):
        raise UserError(
            f"method.fuse={config.method.fuse} averages trained weights, and {config.method.name} trains none"
            " after step 0: leave method.fuse out."
        )


def _check_crop(config: RunConfig, network: Network) -> None:
    """Crops that would be padded teach the network about padding, and shift its maps against the labels."""
    if left := config.train.crop % network.divisor:
        raise UserError(
            f"train.crop={config.train.crop}: {config.model.backbone} takes multiples of {network.divisor}"
            f" pixels; set train.crop={max(config.train.crop - left, network.divisor)}."
        )


def build_scenario(
    config: RunConfig, dataset: SegDataset
) -> tuple[Scenario, tuple[tuple[str, ...], ...] | None]:
    """The scenario, and the images of its steps if a manifest lists them."""
    wanted, scenario = config.scenario, scenario_of(config, dataset.classes, dataset)
    if wanted.manifest is None:
        return scenario, None
    listed, keys = from_manifest(read_manifest(wanted.manifest), dataset.classes, wanted.manifest)
    if scenario.offline and not listed.offline:  # all at once what the manifest gives step by step
        listed = replace(listed, offline=True)
        keys = (tuple(dict.fromkeys(key for step in keys for key in step)),)
    for name in ("groups", "mode", "void", "future", "offline"):
        ours, theirs = getattr(scenario, name), getattr(listed, name)
        if ours != theirs:
            raise UserError(
                f"The manifest {wanted.manifest} does not fit the recipe: its {name} is {theirs}, not {ours}."
            )
    return scenario, keys


def index_classes(
    dataset: SegDataset, split: str, display: Display, unneeded: Container[str] = frozenset()
) -> np.ndarray:
    """The class index of a data set, with a bar while it is read; `unneeded` images may be gone."""
    cache_folder()  # a user without one is no fault of the data
    try:
        with display.bar(f"reading {split} masks", len(dataset)) as bar:
            return class_index(dataset, lambda done, _: bar.update(done), unneeded)
    except UserError as error:
        raise UserError(f"{error}\nA list of all such files, to leave them out: {DOCTOR}") from error
