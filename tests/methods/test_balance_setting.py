"""`train.balance=classes` reaches the cross-entropy of every method."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from segue.core import plugins
from segue.engine.train import update
from segue.methods.plop import PLOP
from segue.testing import OPTIM, TRAIN, Bench

OWN_BALANCE = {"incseg"}
"""methods that balance classes by a setting of their own"""


def terms(method: str, step_index: int, balance: str) -> dict[str, Tensor]:
    """Loss terms of a step's first update, on labels of which few are a new class."""
    bench = Bench(plugins.find("method", method), {})
    made, train = bench.method(), replace(TRAIN, balance=balance)
    trained = [step.index for step in bench.scenario if made.trains(step)]
    step_index = min(step_index, trained[-1])
    for step in bench.scenario[: step_index + 1]:
        session = bench.begin(made, step)
    batch = bench.batch(step, 3)
    batch.labels[:, 2:] = 0
    if isinstance(made, PLOP):
        made.thresholds.fill_(1.0)  # an untrained teacher is sure of nothing, and then there is no loss
    torch.manual_seed(0)
    return update(session, batch, OPTIM.clip, train)


@pytest.mark.parametrize("method", plugins.names("method"))
@pytest.mark.parametrize("step", [0, 1])
def test_cross_entropy_is_balanced_and_nothing_else(method: str, step: int) -> None:
    plain, balanced = (terms(method, step, balance) for balance in ("none", "classes"))
    assert plain.keys() == balanced.keys()
    changed = {name for name in plain if not torch.equal(plain[name], balanced[name])}
    assert changed == (set() if method in OWN_BALANCE else {"ce", "bce"} & plain.keys())
