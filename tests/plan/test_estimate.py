"""What an epoch is said to cost, against what is known."""

import pytest
import torch

from segue.data.datasets.scenes import Config, Scenes
from segue.engine.build import build_scenario
from segue.engine.recipe import resolve
from segue.plan.estimate import Estimate, estimate
from segue.plan.footprint import footprint, step_session

CPU = torch.device("cpu")


def measured(*words: str) -> Estimate:
    config = resolve("finetune", "scenes", "5-2", overrides=["data.size=64", *words])
    dataset = Scenes(Config(size=64), "train")
    scenario, _ = build_scenario(config, dataset)
    return estimate(config, scenario, dataset, range(20), CPU)


def test_memory_grows_with_the_crop() -> None:
    small, large = measured("train.crop=32"), measured("train.crop=64")
    assert small.model_bytes == large.model_bytes > 10**5
    assert large.image_bytes == pytest.approx(4 * small.image_bytes, rel=0.15)
    assert small.memory(10) == small.model_bytes + 10 * small.image_bytes
    assert small.train_seconds > 0 and small.read_seconds > 0


def test_memory_is_that_of_the_step_that_takes_most() -> None:
    """Batch norm is trained in step 0 and frozen later, where an image takes less."""
    config = resolve("finetune", "scenes", "5-2", overrides=["data.size=64", "train.norm=frozen"])
    scenario, _ = build_scenario(config, Scenes(Config(size=64), "train"))
    first, last = (
        footprint(step_session(config, scenario, step, CPU), config, scenario[step]).image
        for step in (0, len(scenario) - 1)
    )
    assert measured("train.norm=frozen").image_bytes == max(first, last)


def test_what_is_kept_holds_at_least_the_stages_and_the_logits() -> None:
    """10 channels of float logits at 64 px, their log-softmax, and a dozen maps of the tiny network."""
    found = measured("train.crop=64")
    assert 10 * 64 * 64 * 4 < found.image_bytes < 40 * 10 * 64 * 64 * 4


def test_reading_beside_training() -> None:
    costs = Estimate(train_seconds=2.0, read_seconds=1.0, model_bytes=0, image_bytes=0)
    assert costs.epoch_seconds(10, workers=0, cores=2) == 30
    assert costs.epoch_seconds(10, workers=2, cores=2) == 25
    assert costs.epoch_seconds(10, workers=2, cores=None) == 20
    slow = Estimate(1.0, 8.0, 0, 0)
    assert slow.epoch_seconds(10, workers=2, cores=None) == 40
