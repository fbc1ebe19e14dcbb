"""A trained model as one safetensors file: weights, and in its header all that is needed to build it again.

What only training needs (the old branch and the fusion of CAF, the teacher) is not in it. A file may come
from a stranger: loading one runs no code, fetches nothing and opens no other file.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from segue.core.config import validate
from segue.core.errors import UserError
from segue.core.records import atomic_file
from segue.deploy.prepare import Preparation
from segue.models.segmenter import Segmenter

FORMAT, FIRST_FORMAT = "segue-model-2", "segue-model-1"


@dataclass(frozen=True)
class About:
    """The header of a model file."""

    network: dict[str, Any]
    """`Segmenter.spec()`"""
    classes: list[str]
    """names of the channels, background first"""
    images: Preparation


def save_model(
    network: Segmenter, classes: Sequence[str], path: str | Path, images: Preparation | None = None
) -> None:
    """Write a model; `classes` are the names of its channels, background first."""
    about = About(network.spec(), list(classes), images or Preparation())
    tensors = {name: value.detach().cpu().contiguous() for name, value in network.state_dict().items()}
    with atomic_file(path) as file:
        file.write(save(tensors, {"format": FORMAT, "about": json.dumps(dataclasses.asdict(about))}))


def load_model(path: str | Path) -> tuple[Segmenter, tuple[str, ...], Preparation]:
    """The network, ready to predict, the names of its channels, and how images come to it."""
    metadata, tensors = _read(path)
    written = metadata.get("format")
    if written not in (FORMAT, FIRST_FORMAT):
        raise UserError(f"{path} is not a model of this version ({FORMAT}); write one with 'segue export'.")
    try:
        header = json.loads(metadata["about"])
        about = validate(About, header if written == FORMAT else _from_first(header), "")
        network = Segmenter.from_spec(about.network)
        network.load_state_dict(tensors, strict=True)
        if len(about.classes) != sum(network.classifier.sizes):
            raise ValueError(f"{len(about.classes)} names for {sum(network.classifier.sizes)} channels")
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, RecursionError) as error:
        raise UserError(f"{path} does not describe its own weights: {str(error).splitlines()[0]}") from error
    return network.eval(), tuple(about.classes), about.images


def _read(path: str | Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    try:
        with safe_open(path, framework="pt") as file:
            return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise UserError(f"{path} is not a readable model file: {error}.") from error


def _from_first(header: Mapping[str, Any]) -> dict[str, Any]:
    """The header of the first format, which knew one fusion layer and nothing of how images were prepared."""
    layer = header["layer"]
    network = {
        "model": header["model"],
        "fusion": None if layer is None else {"kind": "caf", "config": layer},
        "classifier": {"kind": header.get("classifier", "linear"), "sizes": header["parts"]},
    }
    return {"network": network, "classes": header["classes"], "images": {}}
