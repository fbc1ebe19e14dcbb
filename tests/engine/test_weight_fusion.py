"""EWF: the average of a step's first and last weights, as a setting of every method."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from tiny_runs import ITERATIONS, assert_equal_runs, quiet_run, recipe, run_until
from torch import Tensor

from segue.core.errors import UserError
from segue.core.scenario import Step
from segue.engine.build import build_method
from segue.engine.checkpoint import CheckpointStore, load_tree
from segue.engine.weight_fusion import fuse_weights, new_share, weights_of


def weights(folder: Path, step: int) -> dict[str, Tensor]:
    state = load_tree(CheckpointStore(folder).path(step))["method"]
    return {name: tensor for name, tensor in state.items() if tensor.is_floating_point()}


def test_the_share_of_new_classes() -> None:
    fifteen = tuple(range(1, 16))
    assert new_share("ewf", Step(1, (16,), fifteen)) == pytest.approx(0.2425, abs=1e-4)
    assert new_share("ewf", Step(1, (16, 17, 18, 19, 20), fifteen)) == pytest.approx(0.488, abs=1e-3)
    assert new_share("ewf", Step(1, tuple(range(101, 151)), tuple(range(1, 101)))) == pytest.approx(
        math.sqrt(50 / 151)
    )
    assert new_share("ewf", Step(0, fifteen)) == new_share("none", Step(1, (16,), fifteen)) == 1


def test_counts_of_batch_norm_are_no_weights() -> None:
    model = torch.nn.BatchNorm2d(2)
    before = weights_of(model)
    assert "num_batches_tracked" not in before
    before["weight"].zero_()
    model.num_batches_tracked += 9
    fuse_weights(model, before, 0.25)
    assert model.weight.tolist() == [0.25, 0.25] and model.num_batches_tracked == 9


@pytest.mark.parametrize("method", ["mib", "caf", "sdr"])
def test_of_nothing_and_of_all_that_is_new(method: str, tmp_path: Path, finished) -> None:
    quiet_run(recipe(method, "method.fuse=0"), tmp_path / "old")
    before, after = weights(tmp_path / "old", 0), weights(tmp_path / "old", 1)
    network = [name for name in before if name.startswith("model.")]
    for name in network:
        assert torch.equal(after[name], before[name]), name
    quiet_run(recipe(method, "method.fuse=1"), tmp_path / "new")
    trained = weights(finished(method), 1)
    assert all(torch.equal(trained[name], tensor) for name, tensor in weights(tmp_path / "new", 1).items())
    assert not all(torch.equal(trained[name], after[name]) for name in network)


def test_a_resumed_run_is_fused_like_one_that_was_not_stopped(tmp_path: Path) -> None:
    config = recipe("mib", "method.fuse=ewf")
    quiet_run(config, tmp_path / "whole")
    run_until(config, tmp_path / "stopped", ITERATIONS[0] + 3)
    quiet_run(config, tmp_path / "stopped", resume=True)
    assert_equal_runs(tmp_path / "stopped", tmp_path / "whole")


@pytest.mark.parametrize(("method", "fix"), [("rcil", "branches=none"), ("acil", "leave method.fuse out")])
def test_weights_that_mean_something_else_are_not_averaged(method: str, fix: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=fix):
        quiet_run(recipe(method, "method.fuse=ewf"), tmp_path / "run")
    assert not (tmp_path / "run" / "recipe.yaml").exists()
    build_method(recipe("rcil", "method.fuse=ewf", "method.params.branches=none"), torch.device("cpu"))


@pytest.mark.parametrize("value", ["2", "-0.5", "nan", "some"])
def test_a_share_is_a_number_from_0_to_1(value: str) -> None:
    with pytest.raises(UserError, match=r"method\.fuse"):
        recipe("mib", f"method.fuse={value}")
