"""The examples do what they say: a loop of one's own, and a notebook whose stored pictures are its own."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch

EXAMPLES = Path(__file__).parents[1] / "examples"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_loop_learns_one_class_after_the_other() -> None:
    scores = example("loop").train(epochs=1, crop=32, classes=3, size=32, train=40, test=10)
    assert [len(step) for step in scores] == [3, 4] and "barred triangle" in scores[1]
    assert scores[1]["background"] > 0.5


def test_the_network_of_the_loop_says_the_same_after_growing() -> None:
    network = example("loop").Network(8).eval()
    network.grow(3)
    torch.nn.init.normal_(network.head.weight)
    images = torch.randint(256, (2, 3, 32, 32))
    before = network(images)
    network.grow(5)
    after = network(images)
    torch.testing.assert_close(after[:, :3], before)
    torch.testing.assert_close(after[:, 3:], before[:, :1].expand(-1, 2, -1, -1))
