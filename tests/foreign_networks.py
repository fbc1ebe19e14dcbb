"""The networks of `benchmarks.families` for tests, each made once; those whose library is missing skip."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from benchmarks import families
from benchmarks.families import CLASSES, MEAN, NETWORKS, STD, OwnUNet, lively

__all__ = ["CLASSES", "MEAN", "NETWORKS", "STD", "OwnUNet", "lively", "network", "normalised", "pictures"]
LIBRARIES = {"smp": "segmentation_models_pytorch", "hf": "transformers"}


def smp_network(name: str, **settings: Any) -> nn.Module:
    pytest.importorskip(LIBRARIES["smp"])
    return families.smp_network(name, **settings)


@cache
def _made(name: str, dtype: torch.dtype) -> nn.Module:
    if library := LIBRARIES.get(name.split()[0]):
        pytest.importorskip(library)
    torch.manual_seed(0)
    return lively(NETWORKS[name]())


def network(name: str) -> nn.Module:
    """A network of its own, in test mode."""
    return copy.deepcopy(_made(name, torch.get_default_dtype()))


def pictures(height: int = 64, width: int = 64, count: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (count, 3, height, width), generator=generator).to(torch.uint8)


def normalised(images: Tensor) -> Tensor:
    """As the networks above want their input."""
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (MEAN, STD))
    return (images / 255 - mean) / std
