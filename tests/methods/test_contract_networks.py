"""Every method that finds what it needs keeps the contract on networks of other libraries, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest
from foreign_folders import tiny_folder

from segue.core import plugins
from segue.core.config import ModelConfig
from segue.core.errors import UserError
from segue.core.networks import named_network
from segue.engine.seeds import seed_all
from segue.models.build import build_network
from segue.models.network import Network
from segue.testing import check_method
from segue.testing.methods import check_losses, check_predictions, check_resume

REFUSED = {"rcil"}
"""methods whose twins stand in a backbone of Segue's own"""


@pytest.fixture(scope="module", params=["smp", "hf"])
def network(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Network:
    folder: Path = tmp_path_factory.mktemp("folder")
    named = named_network(tiny_folder(folder, request.param))
    seed_all(0)
    return build_network(ModelConfig(backbone=named.name, network=named.described))


@pytest.mark.parametrize("name", [name for name in plugins.names("method") if name not in REFUSED])
def test_methods_run_two_steps_and_resume_on_networks_of_other_libraries(name: str, network: Network) -> None:
    params = {"width": 32} if name == "acil" else {}  # h of a U-Net is as large as the image
    check_method(name, params, network, [check_losses, check_predictions, check_resume])


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_methods_that_need_more_are_refused_with_a_sentence(name: str, network: Network) -> None:
    kind = plugins.find("method", name)
    with pytest.raises(UserError, match="needs a backbone of Segue's own"):
        kind(kind.Config(), network)
