"""RCIL in its later steps: what is frozen, what goes on, what is deployed, and networks without a place."""

from __future__ import annotations

import pytest
import torch
from step_one import step_one

from segue.core import plugins
from segue.core.config import ModelConfig
from segue.core.errors import UserError
from segue.models.segmenter import Segmenter


def test_the_left_twins_rest_and_the_right_ones_learn() -> None:
    made = step_one("rcil", updates=0)
    method = made.method
    before = {name: value.clone() for name, value in method.state_dict().items()}
    made.bench.train(made.session, made.step, range(3))
    changed = {name for name, value in method.state_dict().items() if not torch.equal(before[name], value)}
    assert not [name for name in changed if ".left" in name]
    assert [name for name in changed if ".right.weight" in name]


def test_the_deployed_network_is_a_plain_one() -> None:
    made = step_one("rcil")
    method, images = made.method.eval(), made.bench.batch(made.step, 0).images
    plain = method.deployed()
    again = Segmenter.from_spec(plain.spec())
    again.load_state_dict(plain.state_dict(), strict=True)
    with torch.no_grad():
        torch.testing.assert_close(again.eval()(images).logits, method.model(images).logits)


@pytest.mark.parametrize(
    "config",
    [
        ModelConfig(backbone="tiny", head="tiny", output_stride=8, frozen_stages=4),
        ModelConfig(backbone="test_vit", head="tiny", output_stride=16),
    ],
    ids=["frozen", "vit"],
)
def test_a_network_without_such_convolutions_is_refused(config: ModelConfig) -> None:
    kind, model = plugins.find("method", "rcil"), Segmenter(config)
    with pytest.raises(UserError, match="branches=none"):
        kind(kind.Config(), model)
    kind(kind.Config(branches="none"), model)
