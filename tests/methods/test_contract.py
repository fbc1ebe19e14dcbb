"""Every registered method, and every named variant of one, keeps the contract."""

from typing import Any

import pytest

from segue.core import plugins
from segue.testing import check_method

CASES: dict[str, tuple[str, dict[str, Any]]] = {name: (name, {}) for name in plugins.names("method")}
for method in plugins.names("method"):
    for variant, values in plugins.find("method", method).variants.items():
        if values:  # else it is the method as it stands
            CASES[f"{method}-{variant}"] = (method, {"variant": variant, **values})
CASES["rcil-losses-alone"] = ("rcil", {"branches": "none"})
CASES["star-adapt"] = ("star", {"adapt": True})
CASES["caf-gaussians"] = ("caf", {"rehearsal": {"store": "gaussians"}})
CASES["caf-guided"] = ("caf", {"labels": "selective", "kd_target": "guided"})
CASES["caf-added-layer"] = ("caf", {"layer_since": 1})


def test_every_variant_of_caf_is_checked() -> None:
    assert {"caf", "caf-paper", "caf-official", "caf-official_head"} <= set(CASES)


@pytest.mark.parametrize("case", CASES)
def test_contract(case: str) -> None:
    name, params = CASES[case]
    check_method(name, params)
