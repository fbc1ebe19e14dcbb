"""The network of a recipe that names one of another library: built, its parts found, its weights read.

The recipe holds a description without parts (core/networks.py). They are found by proof, as those of a
network that was trained elsewhere, on a copy with lively random weights: the structure is the same.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from segue.core.config import ModelConfig, validate
from segue.core.errors import UserError
from segue.core.ordinary import user_path
from segue.models.adopted.find import find_parts
from segue.models.adopted.hf_files import loaded
from segue.models.adopted.network import AdoptedNetwork
from segue.models.adopted.parts import Adoption, Normalisation, Parts
from segue.models.adopted.sources import build_module, own_code, smp_module
from segue.models.adopted.weights import load_exactly, read_weights

AUXILIARY = ("aux_classifier", "auxiliary_head", "classification_head")
"""heads that only a network's own training needs: files may hold their weights"""
OF_CLASSES = ("fc", "head", "classifier", "last_linear")
"""parts of an encoder's file that belong to its former task"""


@dataclass(frozen=True)
class Described:
    """A network whose parts are yet to be found: `ModelConfig.network` of a recipe."""

    source: dict[str, Any]
    normalisation: Normalisation


def named_network(config: ModelConfig, module: nn.Module | None = None) -> AdoptedNetwork:
    """The network of a recipe, without channels yet, with the weights that the recipe names, or random ones.

    `module` is one that was built already.
    """
    described = validate(Described, config.network or {}, "model.network")
    source, fetch = described.source, _fetches(config, described.source)
    if module is None:
        if source.get("kind") == "python":
            module = own_code(source["code"])
        else:
            module = smp_module(source, fetch) if fetch else build_module(source)
    parts = _parts(module, source)
    if config.weights is not None:
        module = _with_weights(module, parts, source, config.weights)
    adoption = Adoption(source, parts, described.normalisation)
    return AdoptedNetwork(replace(config, network=asdict(adoption)), module)


def _fetches(config: ModelConfig, source: Mapping[str, Any]) -> bool:
    """Whether the library should fetch weights for the encoder."""
    if config.pretrained and source.get("kind") != "smp":
        raise UserError(
            f"model.pretrained=true: Segue fetches no weights of {config.backbone}. Begin with a folder,"
            " model.network=hf:FOLDER, with model.weights=FILE, or with random weights,"
            " model.pretrained=false."
        )
    return bool(config.pretrained)


_FOUND: dict[str, Parts] = {}
"""parts of networks that this process has built, by their description"""


def _parts(module: nn.Module, source: Mapping[str, Any]) -> Parts:
    """The parts, which a description decides, unless it is a file of code."""
    described = json.dumps(source, sort_keys=True)
    if described in _FOUND and source["kind"] != "python":
        return _FOUND[described]
    probe = copy.deepcopy(module).eval()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for each in probe.modules():
            if isinstance(each, nn.Conv2d | nn.Linear | nn.ConvTranspose2d):
                nn.init.kaiming_normal_(each.weight)
        _FOUND[described] = find_parts(probe)
    return _FOUND[described]


def _with_weights(module: nn.Module, parts: Parts, source: dict[str, Any], file: str) -> nn.Module:
    """The weights of a file: of the whole network but its classifier, or of the encoder alone."""
    path = user_path(file)
    if source["kind"] == "hf" and path.with_name("config.json").is_file():
        return loaded(path.parent, source, [*parts.classifiers, *AUXILIARY])
    state = read_weights(path)
    own = module.state_dict()
    if any(name in own and not name.startswith(OF_CLASSES) for name in state) or parts.encoder is None:
        rows = _under(own, parts.classifiers)
        state = {name: value for name, value in state.items() if name not in rows} | rows
        load_exactly(module, state, path, extra=AUXILIARY)
        return module
    encoder = module.get_submodule(parts.encoder)
    inner = _inner(encoder, state)
    load_exactly(inner, state, path, extra=OF_CLASSES)
    return module


def _inner(encoder: nn.Module, state: Mapping[str, Tensor]) -> nn.Module:
    """The encoder, or the module in a wrapper around it (smp's timm encoders) that the names belong to."""
    named = [encoder, *encoder.children()]
    return max(named, key=lambda each: len(set(each.state_dict()) & set(state)))


def _under(state: Mapping[str, Tensor], paths: list[str]) -> dict[str, Tensor]:
    return {
        name: value for name, value in state.items() if any(name.startswith(f"{path}.") for path in paths)
    }
