"""The images of a step for a loop of one's own are those of a run."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from short_runs import SHORT
from torch.utils.data import DataLoader

import segue
from segue.core.progress import Display
from segue.engine.data import build_data


@pytest.fixture
def sizes() -> dict[str, int]:
    return {"classes": 3, "size": 32, "train": 16, "test": 6}


def test_images_and_labels_are_those_of_a_run(sizes):
    run = build_data(segue.resolve("mib", "scenes", "2-1", overrides=SHORT), Display(quiet=True))
    train, test = (segue.open_dataset("scenes", split, **sizes) for split in ("train", "test"))
    scenario = segue.make_scenario(train.classes, "2-1")
    assert scenario == run.scenario
    for step in scenario:
        ours = segue.step_data(train, scenario, step, 32)
        theirs = run.train_batches(step.index, torch.device("cpu")).data
        assert np.array_equal(ours.indices, theirs.indices) and np.array_equal(ours.table, theirs.table)
        tested = segue.step_data(test, scenario, step, 32, "test")
        (batch,) = run.test_batches(step.index, torch.device("cpu"))
        images, labels, names = next(iter(DataLoader(tested, batch_size=len(tested))))
        assert list(names) == batch.keys and torch.equal(images, batch.images)
        assert torch.equal(labels.long(), batch.labels)


def test_crops_follow_the_generator_of_torch(sizes):
    data = segue.open_dataset("scenes", "train", **sizes)
    scenario = segue.make_scenario(data.classes, "2-1")
    images = segue.step_data(data, scenario, scenario[0], 32, scale=(0.3, 0.6))
    torch.manual_seed(1)
    first, second = images[0][0], images[0][0]
    torch.manual_seed(1)
    assert torch.equal(images[0][0], first) and not torch.equal(first, second)


def test_wrong_settings_are_named():
    with pytest.raises(segue.UserError, match=r"data\.sise.*'?size"):
        segue.open_dataset("scenes", sise=32)
    with pytest.raises(segue.UserError, match="scenes"):
        segue.open_dataset("scene")
