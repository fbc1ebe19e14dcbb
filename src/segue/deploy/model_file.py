"""A trained model as one safetensors file: weights, and in its header all that is needed to build it again.

What only training needs (the old branch and the fusion of CAF, the teacher) is not in it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import nn

from segue.core.config import ModelConfig, validate
from segue.core.errors import UserError
from segue.core.records import atomic_file
from segue.models.caf import CafLayer, LayerConfig
from segue.models.classifier import CLASSIFIERS
from segue.models.segmenter import Segmenter

FORMAT = "segue-model-1"


def save_model(model: Segmenter, classes: Sequence[str], path: str | Path) -> None:
    """Write a model; `classes` are the names of its channels, background first."""
    layer = None if model.fusion is None else dataclasses.asdict(model.fusion.config)
    about = {
        "model": dataclasses.asdict(dataclasses.replace(model.config, weights=None, pretrained=False)),
        "layer": layer,
        "classifier": _kind(model.classifier),
        "parts": list(model.classifier.sizes),
        "classes": list(classes),
    }
    tensors = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    with atomic_file(path) as file:
        file.write(save(tensors, {"format": FORMAT, "about": json.dumps(about)}))


def load_model(path: str | Path) -> tuple[Segmenter, tuple[str, ...]]:
    """The model, ready to predict, and the names of its channels."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise UserError(f"{path} is not a readable model file: {error}.") from error
    if metadata.get("format") != FORMAT:
        raise UserError(f"{path} is not a model of this version ({FORMAT}); write one with 'segue export'.")
    try:
        about: dict[str, Any] = json.loads(metadata["about"])
        # whatever a stranger's file says: nothing is fetched, and no other file is opened
        described = {**about["model"], "weights": None, "pretrained": False}
        model = Segmenter(validate(ModelConfig, described, "model"))
        if about["layer"] is not None:
            model.fusion = CafLayer(
                model.backbone.channels[-1], validate(LayerConfig, about["layer"], "layer")
            )
        model.classifier = CLASSIFIERS[about.get("classifier", "linear")](model.classifier.in_channels)
        for channels in about["parts"]:
            model.classifier.grow(channels, balanced=False)
        model.load_state_dict(tensors, strict=True)
        classes = tuple(map(str, about["classes"]))
        if len(classes) != sum(model.classifier.sizes):
            raise ValueError(f"{len(classes)} names for {sum(model.classifier.sizes)} channels")
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise UserError(f"{path} does not describe its own weights: {str(error).splitlines()[0]}") from error
    return model.eval(), classes


def _kind(classifier: nn.Module) -> str:
    for name, kind in CLASSIFIERS.items():
        if type(classifier) is kind:
            return name
    raise UserError(f"A classifier of one's own, {type(classifier).__name__}, cannot be exported.")
