"""Every registered method, and every named variant of one, keeps the contract."""

from typing import Any

import pytest

from segue.core import plugins
from segue.testing import Bench, check_method

CASES: dict[str, tuple[str, dict[str, Any]]] = {name: (name, {}) for name in plugins.names("method")}
for method in plugins.names("method"):
    for variant, values in plugins.find("method", method).variants.items():
        if values:  # else it is the method as it stands
            CASES[f"{method}-{variant}"] = (method, {"variant": variant, **values})
CASES["rcil-losses-alone"] = ("rcil", {"branches": "none"})
CASES["star-adapt"] = ("star", {"adapt": True})
CASES["star-mixture"] = ("star", {"mixture": True})
CASES["mib-memory"] = ("mib", {"memory": {"size": 4}})
CASES["caf-mixtures"] = ("caf", {"rehearsal": {"store": "mixtures"}})
CASES["caf-imagined"] = ("caf", {"rehearsal": {"store": "imagined"}})
CASES["caf-gaussians"] = ("caf", {"rehearsal": {"store": "gaussians"}})
CASES["caf-guided"] = ("caf", {"labels": "selective", "kd_target": "guided"})
CASES["caf-added-layer"] = ("caf", {"layer_since": 1})


def test_every_variant_of_caf_is_checked() -> None:
    assert {"caf", "caf-paper", "caf-official", "caf-official_head"} <= set(CASES)


@pytest.mark.parametrize("case", CASES)
def test_contract(case: str) -> None:
    name, params = CASES[case]
    check_method(name, params)


@pytest.mark.precision("float32")
@pytest.mark.parametrize("name", ["acil", "caf", "dkd", "mbs", "mib", "rcil", "sdr", "star"])
def test_memory_of_a_class_is_what_its_method_says(name: str) -> None:
    """What a step adds to the method's own state, beside the model's, divided by its classes."""
    bench = Bench(plugins.find("method", name), {})
    method, sizes = bench.method(), []
    for step in bench.scenario.steps[:3]:
        method.pass_through(step)
        own = [value for key, value in method.state_dict().items() if not key.startswith("model.")]
        sizes.append(sum(value.nbytes for value in own))
    said = method.about.of_class.bytes(method.model.h_channels, method.model.z_channels)
    assert (sizes[2] - sizes[1]) / len(step.new) == said
