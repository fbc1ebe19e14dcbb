"""Hugging Face transformers: networks for semantic segmentation, saved by their own `save_pretrained`."""

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
from segue.models.adopted.hf_files import loaded, without_bars
from segue.models.adopted.network import AdoptedNetwork
from segue.models.adopted.weights import Foreign, names_of

PREFIX = "transformers.models."
NOT_TOLD = ("_name_or_path", "transformers_version")
"""keys of a config that say nothing of the network, but where it lay"""


def owns(module: nn.Module) -> bool:
    """Whether a module is of this family."""
    return type(module).__module__.startswith(PREFIX) and hasattr(module, "config")


def source_of(module: Any) -> dict[str, Any] | None:
    """Its config."""
    if not owns(module):
        return None
    config = json.loads(module.config.to_json_string(use_diff=False))
    return {"kind": "hf", "config": {key: value for key, value in config.items() if key not in NOT_TOLD}}


def without_auxiliary(module: Any) -> None:
    if getattr(module, "auxiliary_head", None) is not None:
        module.auxiliary_head = None
        module.config.use_auxiliary_head = False


def read(text: str) -> Foreign:
    """A folder of `save_pretrained`: names are in config.json, normalisation in preprocessor_config.json."""
    folder = user_path(text)
    config = read_object(folder / "config.json")
    if config is None or "model_type" not in config:
        raise UserError(f"{folder} is no folder of save_pretrained: its config.json names no network.")
    source = {"kind": "hf", "config": config}
    module = loaded(folder, source)
    said = read_object(folder / "preprocessor_config.json") or {}
    plain = not said.get("do_normalize", True)
    size = said.get("size")
    return Foreign(
        module,
        source,
        names_of(config.get("id2label")),
        [0.0] * 3 if plain else said.get("image_mean"),
        [1.0] * 3 if plain else said.get("image_std"),
        1.0 if said.get("do_rescale", True) else 255.0,
        size.get("shortest_edge", size.get("height")) if isinstance(size, dict) else size,
        no_background=bool(said.get("do_reduce_labels", config.get("do_reduce_labels"))),
    )


def save(network: AdoptedNetwork, names: Sequence[str], folder: Path) -> None:
    """What `from_pretrained(folder)` reads, and how images are normalised."""
    module: Any = network.own_module()
    module.config.id2label = dict(enumerate(names))
    module.config.label2id = {name: channel for channel, name in enumerate(names)}
    if hasattr(module, "num_labels"):
        module.num_labels = len(names)
    with without_bars():
        module.save_pretrained(str(folder))
    numbers = network.adoption.normalisation
    preparation = {
        "do_rescale": numbers.white == 1,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": numbers.mean,
        "image_std": numbers.std,
        "do_reduce_labels": network.closed,
    }
    write_json(folder / "preprocessor_config.json", preparation, folder)
