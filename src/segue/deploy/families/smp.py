"""segmentation_models_pytorch: networks of `smp`, saved by their own `save_pretrained`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from segue.core.checked_json import read_object
from segue.core.errors import UserError
from segue.core.ordinary import user_path
from segue.core.records import write_json
from segue.models.adopted.network import AdoptedNetwork
from segue.models.adopted.sources import build_module
from segue.models.adopted.weights import Foreign, load_exactly, names_of, read_weights

PREFIX = "segmentation_models_pytorch."


def owns(module: nn.Module) -> bool:
    """Whether a module is of this family."""
    return type(module).__module__.startswith(PREFIX) and hasattr(module, "segmentation_head")


def source_of(module: Any) -> dict[str, Any] | None:
    """Its class and the settings that it was made with."""
    if not owns(module):
        return None
    config = {**module.config, "encoder_weights": None}
    return {"kind": "smp", "name": type(module).__name__, "config": json.loads(json.dumps(config))}


def without_auxiliary(module: Any) -> None:
    if getattr(module, "classification_head", None) is not None:
        module.classification_head = None
        module.config["aux_params"] = None


def read(text: str) -> Foreign:
    """A folder of `save_pretrained`. smp keeps neither names nor normalisation in it: classes.json may."""
    folder = user_path(text)
    config = read_object(folder / "config.json")
    if config is None or "_model_class" not in config:
        raise UserError(f"{folder} is no folder of smp's save_pretrained: its config.json names no network.")
    settings = {key: value for key, value in config.items() if not key.startswith("_")}
    source = {
        "kind": "smp",
        "name": str(config["_model_class"]),
        "config": settings | {"encoder_weights": None},
    }
    module = build_module(source)
    path = folder / "model.safetensors"
    load_exactly(module, read_weights(path if path.is_file() else folder / "pytorch_model.bin"), path)
    return Foreign(module, source, names_of(read_object(folder / "classes.json")))


def save(network: AdoptedNetwork, names: Sequence[str], folder: Path) -> None:
    """What `smp.from_pretrained(folder)` reads, and classes.json."""
    module: Any = network.own_module()
    module.config["classes"] = len(names)
    module.config["activation"] = None if network.adoption.binary else module.config.get("activation")
    module.save_pretrained(str(folder))
    write_json(folder / "classes.json", {str(channel): name for channel, name in enumerate(names)}, folder)
