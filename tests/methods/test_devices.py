"""What a method adds as it grows lies where its model is; `meta` stands for any device but the CPU."""

import pytest
import torch

from segue.core import plugins
from segue.testing import Bench


@pytest.mark.parametrize(
    ("name", "params"), [*((name, {}) for name in plugins.names("method")), ("caf", {"layer_since": 1})]
)
def test_growth_stays_on_the_device(name: str, params: dict) -> None:
    bench = Bench(plugins.find("method", name), params)
    method = bench.method().to("meta")
    for step in bench.scenario:
        method.grow(step)
    tensors = {key: value for key, value in method.state_dict().items() if "extra_state" not in key}
    if method.teacher is not None:
        tensors |= {f"teacher.{key}": value for key, value in method.teacher.model.state_dict().items()}
    elsewhere = [key for key, value in tensors.items() if value.device != torch.device("meta")]
    assert tensors and not elsewhere
