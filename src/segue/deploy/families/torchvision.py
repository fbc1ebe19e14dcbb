"""torchvision: networks of `torchvision.models.segmentation`, saved as a state dict with names beside it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as save_tensors
from torch import nn

from segue.core.records import atomic_file, write_json
from segue.models.adopted.network import AdoptedNetwork

PREFIX = "torchvision.models.segmentation"


def source_of(module: nn.Module) -> dict[str, Any] | None:
    """The builder that gives such a module, found by the names and shapes of its weights."""
    if not type(module).__module__.startswith(PREFIX):
        return None
    from torchvision import models

    shapes = {name: tuple(value.shape) for name, value in _main(module.state_dict()).items()}
    outputs = [shape[0] for name, shape in shapes.items() if name.startswith("classifier.") and shape]
    for builder in models.list_models(module=models.segmentation):
        with torch.device("meta"):
            built = models.get_model(builder, weights=None, weights_backbone=None, num_classes=outputs[-1])
        if {name: tuple(value.shape) for name, value in _main(built.state_dict()).items()} == shapes:
            return {"kind": "torchvision", "builder": builder, "num_classes": outputs[-1]}
    return None


def _main(state: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in state.items() if not name.startswith("aux_classifier.")}


def without_auxiliary(module: nn.Module) -> None:
    if getattr(module, "aux_classifier", None) is not None:
        module.aux_classifier = None


def save(network: AdoptedNetwork, names: Sequence[str], folder: Path) -> None:
    """weights.safetensors, classes.json, and build.json: the builder and what it takes."""
    module = network.own_module()
    state = {name: value.detach().cpu().contiguous() for name, value in module.state_dict().items()}
    with atomic_file(folder / "weights.safetensors", folder) as file:
        file.write(save_tensors(state))
    write_json(folder / "classes.json", {str(channel): name for channel, name in enumerate(names)}, folder)
    source = {**network.adoption.source, "num_classes": len(names)}
    write_json(folder / "build.json", json.loads(json.dumps(source)), folder)
