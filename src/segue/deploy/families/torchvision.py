"""torchvision: networks of `torchvision.models.segmentation`, saved as a state dict with names beside it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as save_tensors

from segue.core.checked_json import read_object
from segue.core.errors import UserError
from segue.core.ordinary import user_path
from segue.core.records import atomic_file, write_json
from segue.models.adopted.network import AdoptedNetwork
from segue.models.adopted.sources import build_module
from segue.models.adopted.weights import PREFIXES, Foreign, load_exactly, names_of, read_weights

PREFIX = "torchvision.models.segmentation"
CLASSIFIERS = ("classifier.4.weight", "classifier.high_classifier.weight")
"""weights that have a row per class, in DeepLabV3 and FCN, and in LRASPP"""


def owns(module: Any) -> bool:
    """Whether a module is of this family."""
    return type(module).__module__.startswith(PREFIX)


def source_of(module: Any) -> dict[str, Any] | None:
    """The builder that gives such a module, found by the names and shapes of its weights."""
    if not owns(module):
        return None
    from torchvision import models

    shapes = {name: tuple(value.shape) for name, value in _main(module.state_dict()).items()}
    channels = next(shapes[name][0] for name in CLASSIFIERS if name in shapes)
    wanted = f"{type(module).__name__.lower()}_*"
    for builder in models.list_models(module=models.segmentation, include=wanted):
        with torch.device("meta"):
            built = models.get_model(builder, weights=None, weights_backbone=None, num_classes=channels)
        if {name: tuple(value.shape) for name, value in _main(built.state_dict()).items()} == shapes:
            return {"kind": "torchvision", "builder": builder, "num_classes": channels}
    return None


def _main(state: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in state.items() if not name.startswith("aux_classifier.")}


def without_auxiliary(module: Any) -> None:
    if getattr(module, "aux_classifier", None) is not None:
        module.aux_classifier = None


def save(network: AdoptedNetwork, names: Sequence[str], folder: Path) -> None:
    """weights.safetensors, classes.json, and build.json: the builder and what it takes."""
    module: Any = network.own_module()
    state = {name: value.detach().cpu().contiguous() for name, value in module.state_dict().items()}
    with atomic_file(folder / "weights.safetensors", folder) as file:
        file.write(save_tensors(state))
    write_json(folder / "classes.json", {str(channel): name for channel, name in enumerate(names)}, folder)
    source = {**network.adoption.source, "num_classes": len(names)}
    write_json(folder / "build.json", json.loads(json.dumps(source)), folder)


def read(text: str) -> Foreign:
    """NAME@FILE: a builder of torchvision and its weights. Images are normalised as its own weights want."""
    from torchvision import models

    builder, _, place = text.partition("@")
    if not place:
        raise UserError(f"torchvision:{text}: name the weights too, torchvision:NAME@FILE.")
    path = user_path(place)
    state = read_weights(path)
    rows = [len(state[f"{before}{name}"]) for name in CLASSIFIERS for before in ("", *PREFIXES)
            if f"{before}{name}" in state]  # fmt: skip
    if not rows:
        raise UserError(f"{path} has no classifier: it is no segmentation network of torchvision.")
    source = {"kind": "torchvision", "builder": builder, "num_classes": rows[0]}
    module = build_module(source)
    load_exactly(module, state, path, extra=("aux_classifier",))
    usual = models.get_model_weights(builder).DEFAULT.transforms()
    names = names_of(read_object(path.parent / "classes.json"))
    return Foreign(module, source, names, list(usual.mean), list(usual.std), size=usual.resize_size[0])
