"""What a dry run says of bytes and FLOPs, against what is known and against the real thing."""

import math

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from segue.core import plugins
from segue.engine.build import build_scenario, open_sets
from segue.engine.recipe import resolve
from segue.engine.train import update
from segue.plan.dry_run import DryRun
from segue.plan.footprint import made_up_batch, step_session

CPU = torch.device("cpu")
MIB = 2**20
QUICK = ("caf", "ewc", "plop", "sdr", "ssul")
"""one of each kind; the others are slow tests"""


def test_what_comes_and_goes_is_counted() -> None:
    before = torch.zeros(MIB)
    with DryRun() as run:
        a = torch.zeros(MIB // 4)
        view, changed = a.view(2, -1), before.mul_(2)
        assert run.live == run.peak == MIB and changed is before
        b = a + 1
        del a, view
        assert (run.live, run.peak) == (MIB, 2 * MIB)
        assert run.lap() == 2 * MIB and run.peak == MIB
        del b
    assert run.live == 0


def test_large_results_are_not_computed_but_small_ones_and_whole_numbers_are() -> None:
    large, ids = torch.ones(MIB), torch.arange(MIB)
    with DryRun():
        assert (large + 1).eq(0).all()
        assert (torch.ones(3) + 1).tolist() == [2, 2, 2]
        assert (ids + 1)[5] == 6
        assert large[ids < 7].numel() == 7  # a shape that depends on values
        assert large.sum().item() == MIB
    with DryRun(large=math.inf):
        assert (large + 1)[0] == 2


@pytest.mark.parametrize("groups", [1, 2, 8])
def test_flops_of_convolutions_know_groups(groups: int) -> None:
    layer, image = nn.Conv2d(8, 16, 3, padding=1, groups=groups), torch.ones(2, 8, 10, 10, requires_grad=True)
    with DryRun() as ours:
        layer(image).sum().backward()
    assert ours.flops == 3 * 2 * 2 * 100 * 16 * 9 * 8 // groups
    with FlopCounterMode(display=False) as theirs:
        layer(image).sum().backward()
    assert (theirs.get_total_flops() == ours.flops) is (groups == 1), "then ours is not needed"


def test_flops_of_products_in_place() -> None:
    into, a, b = torch.zeros(3, 4, 6), torch.ones(3, 4, 5), torch.ones(3, 5, 6)
    with DryRun() as run:
        into.baddbmm_(a, b)
    assert run.flops == 2 * 3 * 4 * 5 * 6


def test_a_pass_without_gradients_is_counted_too() -> None:
    layer, image = nn.Conv2d(8, 16, 1), torch.ones(2, 8, 10, 10)
    with DryRun() as run, torch.inference_mode():
        layer(image)
    assert run.flops == 2 * 2 * 100 * 16 * 8 and run.peak == 2 * 100 * 16 * 4


def test_checkpointed_parts_are_let_go() -> None:
    parts = [nn.Sequential(nn.Conv2d(4, 4, 1), nn.Sigmoid(), nn.Conv2d(4, 4, 1)) for _ in range(8)]
    peaks = []
    for run_part in (lambda part, x: part(x), lambda part, x: checkpoint(part, x, use_reentrant=False)):
        with DryRun(large=math.inf) as run:
            maps = torch.ones(1, 4, 64, 64)
            for part in parts:
                maps = run_part(part, maps)
            maps.sum().backward()
        peaks.append(run.peak)
    assert peaks[1] < 0.7 * peaks[0]


@pytest.mark.parametrize(
    "name",
    [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
        for name in plugins.names("method")
    ],
)
def test_dry_iteration_has_the_bytes_and_flops_of_a_real_one(name: str) -> None:
    words = ["data.size=32", "train.crop=32", "data.classes=4", "train.batch_size=2"]
    config = resolve(name, "scenes", "2-2", overrides=words)
    scenario, _ = build_scenario(config, open_sets(config)[0])
    found = []
    for large in (1024, math.inf):
        session = step_session(config, scenario, len(scenario) - 1, CPU)
        batch = made_up_batch(session.method, scenario[-1], 2, config, CPU)
        with DryRun(large) as run:
            update(session, batch, config.optim.clip, config.train)
        found.append((run.peak, run.flops))
    (dry, dry_flops), (real, real_flops) = found
    laid_out = max(parameter.nbytes for parameter in session.method.parameters())  # a copy of its gradient
    assert dry == pytest.approx(real, abs=0.03 * real + laid_out) and dry_flops == real_flops > 10**6
