"""Hugging Face transformers: networks for semantic segmentation, saved by their own `save_pretrained`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from segue.core.records import write_json
from segue.models.adopted.network import AdoptedNetwork

PREFIX = "transformers.models."


def source_of(module: nn.Module) -> dict[str, Any] | None:
    """Its config."""
    if not type(module).__module__.startswith(PREFIX) or not hasattr(module, "config"):
        return None
    return {"kind": "hf", "config": json.loads(module.config.to_json_string(use_diff=False))}


def without_auxiliary(module: nn.Module) -> None:
    if getattr(module, "auxiliary_head", None) is not None:
        module.auxiliary_head = None
        module.config.use_auxiliary_head = False


def save(network: AdoptedNetwork, names: Sequence[str], folder: Path) -> None:
    """What `from_pretrained(folder)` reads, and how images are normalised."""
    module = network.own_module()
    module.config.id2label = dict(enumerate(names))
    module.config.label2id = {name: channel for channel, name in enumerate(names)}
    if hasattr(module, "num_labels"):
        module.num_labels = len(names)
    module.save_pretrained(str(folder))
    numbers = network.adoption.normalisation
    preparation = {
        "do_rescale": numbers.white == 1,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": numbers.mean,
        "image_std": numbers.std,
        "do_reduce_labels": False,
    }
    write_json(folder / "preprocessor_config.json", preparation, folder)
