"""A network from a recipe or from a spec: Segue's own, or one that was adopted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from segue.core.config import ModelConfig
from segue.models.adopted.named import named_network
from segue.models.adopted.network import AdoptedNetwork, adoption_of
from segue.models.adopted.sources import build_module, own_code
from segue.models.network import Network
from segue.models.segmenter import Segmenter


def build_network(config: ModelConfig, module: nn.Module | None = None) -> Network:
    """The network of a recipe, not grown yet. A recipe is the user's own: it may name a file of code.

    `module`, which is taken over, is the user's own, for a network that a recipe cannot build.
    """
    if config.network is None:
        return Segmenter(config)
    if "parts" not in config.network:
        return named_network(config, module)
    source = adoption_of(config.network).source
    if module is None:
        module = own_code(source["code"]) if source.get("kind") == "python" else build_module(source)
    return AdoptedNetwork(config, module)


def network_from_spec(
    spec: Mapping[str, Any], channels: int | None = None, module: nn.Module | None = None
) -> Network:
    """The network that a spec describes, with random weights; a stranger's spec runs no code.

    `module` is the user's own, for a network that a spec cannot build.
    """
    described = spec["model"].get("network")
    if described is None:
        return Segmenter.from_spec(spec, channels)
    if module is None:
        module = build_module(adoption_of(described).source)
    return AdoptedNetwork.from_spec(spec, module, channels)
