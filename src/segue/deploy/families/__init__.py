"""Families of networks: how a module of a library is told, described, and saved as that library saves it.

A family is a module here with `owns`, `source_of`, `without_auxiliary`, `read` and `save`; none of them
imports its library before it is needed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from segue.core.errors import UserError
from segue.deploy.families import hf, smp, torchvision
from segue.models.adopted.network import AdoptedNetwork
from segue.models.adopted.sources import absolute, build_module, own_code
from segue.models.adopted.weights import Foreign

FAMILIES: dict[str, ModuleType] = {"torchvision": torchvision, "smp": smp, "hf": hf}
CODE = re.compile(r"\.py:\w+$")
"""ending of file.py:function"""


def is_source(text: str) -> bool:
    """Whether a text names a network of another library: FAMILY:PLACE, or file.py:function."""
    kind, _, place = text.partition(":")
    return bool(place) and (kind in FAMILIES or CODE.search(text) is not None)


def read(text: str) -> Foreign:
    """The network that FAMILY:PLACE or file.py:function names. The latter runs that file."""
    kind, _, place = text.partition(":")
    if kind in FAMILIES:
        return FAMILIES[kind].read(place)
    source = {"kind": "python", "name": text.rpartition(":")[2], "code": absolute(text)}
    return Foreign(own_code(text), source)


def describe(module: nn.Module) -> dict[str, Any]:
    """How a module can be built again: by its family, if that gives the same weights; else it is code."""
    for family in FAMILIES.values():
        source = family.source_of(module)
        if source is not None and _builds(source, module):
            return source
    return {"kind": "module", "name": type(module).__name__}


def without_auxiliary(module: nn.Module) -> nn.Module:
    """The module without heads that only its own training needs; it is changed in place."""
    for family in FAMILIES.values():
        if family.owns(module):
            family.without_auxiliary(module)
    return module


def save_native(network: AdoptedNetwork, classes: Sequence[str], folder: Path) -> None:
    """Write a network as its own family does, so that code of that family loads it."""
    source = network.adoption.source
    if source["kind"] not in FAMILIES:
        raise UserError(
            f"{network.config.backbone} belongs to no family of networks: save a model folder, or use"
            " model.network.own_module().state_dict()."
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is there already: name a new folder.")
    folder.mkdir(parents=True, exist_ok=True)
    names = [classes[channel] for channel in network.own_order()]
    FAMILIES[source["kind"]].save(network, names, folder)


def _builds(source: dict[str, Any], module: nn.Module) -> bool:
    """Whether a source gives a module with the same weights, by name and shape."""
    try:
        with torch.device("meta"):
            built = build_module(source)
    except Exception:  # whatever a library raises for settings that it did not make
        return False
    ours, theirs = (
        {name: tuple(value.shape) for name, value in each.state_dict().items()} for each in (built, module)
    )
    return ours == theirs
