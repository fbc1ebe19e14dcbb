"""What an epoch will cost on this machine, measured with a few images of the recipe's size."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from segue.core.config import RunConfig
from segue.core.scenario import Scenario
from segue.data.batches import StepData
from segue.data.datasets.base import SegDataset
from segue.data.transforms import train_transform
from segue.engine.runtime import synchronize
from segue.engine.train import update
from segue.plan.footprint import footprint, made_up_batch, step_session

IMAGES = 4
"""images in a timed batch; with fewer an image takes nearly twice the time"""
READ_IMAGES = 8
ROUNDS = 2


@dataclass(frozen=True)
class Estimate:
    """Time of the recipe's last step, with all channels; memory of the step that takes most."""

    train_seconds: float
    """time of an iteration, per image"""
    read_seconds: float
    """reading and augmenting an image on one core"""
    model_bytes: int
    """weights, gradients, momentum, and what the method keeps"""
    image_bytes: int
    """memory of an iteration, per image"""

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
    """Time an iteration of the last step, and the reading of a few of these images; follow the memory."""
    session, step = step_session(config, scenario, len(scenario) - 1, device), scenario[-1]
    batch = made_up_batch(session.method, step, IMAGES, config, device)

    def iteration() -> float:
        began = time.perf_counter()
        update(session, batch, config.optim.clip, replace(config.train, accumulate=1))
        synchronize(device)
        return time.perf_counter() - began

    iteration()  # the first one is slower
    seconds = min(iteration() for _ in range(ROUNDS)) / IMAGES
    needs = [footprint(session, config, step)]
    if len(scenario) > 1:  # step 0 trains batch norm, which may take twice the memory of later steps
        needs.append(footprint(step_session(config, scenario, 0, device), config, scenario[0]))
    most = max(needs, key=lambda each: each.image)
    return Estimate(seconds, _reading(config, scenario, dataset, images), most.fixed, most.image)


def _reading(config: RunConfig, scenario: Scenario, dataset: SegDataset, images: Sequence[int]) -> float:
    chosen = images[:: max(1, len(images) // READ_IMAGES)][:READ_IMAGES]
    transform = train_transform(config.train.crop, config.train.scale)
    data = StepData(dataset, chosen, scenario.label_table(scenario[0]), transform)
    began = time.perf_counter()
    for position in range(len(chosen)):
        data[position, position]
    return (time.perf_counter() - began) / len(chosen)
