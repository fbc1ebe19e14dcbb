"""What an epoch will cost on this machine, measured with a few images of the recipe's size."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from segue.core.config import RunConfig
from segue.core.scenario import Scenario
from segue.data.datasets.base import SegDataset
from segue.data.steps import StepData
from segue.data.transforms import train_transform
from segue.engine.build import build_method
from segue.engine.runtime import autocast, synchronize
from segue.losses import cross_entropy

IMAGES = 4
"""with fewer an image takes nearly twice the time that it takes in a batch"""
READ_IMAGES = 8
ROUNDS = 2


@dataclass(frozen=True)
class Estimate:
    """Costs of fine-tuning the recipe's network with all its channels."""

    train_seconds: float
    """forward and backward pass, per image"""
    read_seconds: float
    """reading and augmenting an image on one core"""
    model_bytes: int
    """weights, gradients and momentum"""
    image_bytes: int
    """what the backward pass needs of one image"""

    def epoch_seconds(self, images: int, workers: int, cores: int | None) -> float:
        """Reading goes on beside training if there are workers; on a CPU (`cores`) both share it."""
        train, read = images * self.train_seconds, images * self.read_seconds
        if not workers:
            return train + read
        return max(train, read / workers) if cores is None else train + read / cores

    def memory(self, images: int) -> int:
        return self.model_bytes + images * self.image_bytes


def estimate(
    config: RunConfig, scenario: Scenario, dataset: SegDataset, images: Sequence[int], device: torch.device
) -> Estimate:
    """Time an iteration of fine-tuning, and the reading of a few of these images."""
    method = build_method(config, device, initial_weights=False)
    for step in scenario:
        method.grow(step)
    model, crop = method.model.train(), config.train.crop
    batch = torch.zeros(IMAGES, 3, crop, crop, dtype=torch.uint8, device=device)
    labels = torch.zeros(IMAGES, crop, crop, dtype=torch.uint8, device=device)
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    def iteration() -> float:
        kept.clear()
        began = time.perf_counter()
        with autocast(device, config.train.precision), torch.autograd.graph.saved_tensors_hooks(note, _same):
            loss = cross_entropy(model(batch).logits, labels)
        loss.backward()
        synchronize(device)
        return time.perf_counter() - began

    iteration()  # the first one is slower
    seconds = min(iteration() for _ in range(ROUNDS)) / IMAGES
    parameters = sum(p.numel() * p.element_size() for p in model.parameters())
    reading = _reading(config, scenario, dataset, images)
    return Estimate(seconds, reading, 3 * parameters, sum(kept.values()) // IMAGES)


def _same(tensor: Tensor) -> Tensor:
    return tensor


def _reading(config: RunConfig, scenario: Scenario, dataset: SegDataset, images: Sequence[int]) -> float:
    chosen = images[:: max(1, len(images) // READ_IMAGES)][:READ_IMAGES]
    transform = train_transform(config.train.crop, config.train.scale)
    data = StepData(dataset, chosen, scenario.label_table(scenario[0]), transform)
    began = time.perf_counter()
    for position in range(len(chosen)):
        data[position, position]
    return (time.perf_counter() - began) / len(chosen)
