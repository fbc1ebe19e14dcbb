"""Networks of other libraries by words of a recipe: `model.network=smp:Unet/resnet18`. No torch.

A text becomes a description of all that decides the network, which the recipe of a run then holds: the
library's builder and its settings, and how images are normalised. Of a folder its config is taken; its
weights are those that training begins with.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from segue.core.checked_json import read_object
from segue.core.errors import UserError, suggest
from segue.core.ordinary import user_path

CHANNELS = 7
"""channels of the classifier that a library builds: rows per step take its place"""
IMAGENET = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
"""normalisation of networks that begin with random weights, or with an encoder trained on ImageNet"""
CODE = re.compile(r"\.py:\w+$")
"""ending of file.py:function"""
HEADS = ("id2label", "label2id", "num_labels", "_name_or_path", "transformers_version", "auto_map")
"""keys of a Hugging Face config that say nothing of the network before its classifier"""
WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")
"""files of weights in a folder of save_pretrained, the first that is there"""
SEGFORMER = {"model_type": "segformer"}
WIDE = {**SEGFORMER, "hidden_sizes": [64, 128, 320, 512]}
WIDER = {**WIDE, "decoder_hidden_size": 768}
CONVNEXT = {
    "model_type": "convnext",
    "depths": [3, 3, 9, 3],
    "hidden_sizes": [96, 192, 384, 768],
    "out_features": ["stage1", "stage2", "stage3", "stage4"],
}
HF_NETWORKS: Mapping[str, Mapping[str, Any]] = {
    "segformer-b0": SEGFORMER,
    "segformer-b1": WIDE,
    "segformer-b2": {**WIDER, "depths": [3, 4, 6, 3]},
    "segformer-b3": {**WIDER, "depths": [3, 4, 18, 3]},
    "segformer-b4": {**WIDER, "depths": [3, 8, 27, 3]},
    "segformer-b5": {**WIDER, "depths": [3, 6, 40, 3]},
    "upernet-convnext-tiny": {"model_type": "upernet", "backbone_config": CONVNEXT},
    "mobilevit-small": {"model_type": "mobilevit"},
    "mobilevit-x-small": {
        "model_type": "mobilevit",
        "hidden_sizes": [96, 120, 144],
        "neck_hidden_sizes": [16, 32, 48, 64, 80, 96, 384],
    },
}
"""networks of transformers by the names of their sizes; what is not said is the library's own default"""
SPELLING = "smp:NAME/ENCODER, smp:FOLDER, hf:NAME, hf:FOLDER, torchvision:NAME or file.py:function"


@dataclass(frozen=True)
class NamedNetwork:
    """A network that a recipe names."""

    name: str
    """name of the network, in the place of a backbone's"""
    described: dict[str, Any]
    """`ModelConfig.network` before its parts are found"""
    weights: str | None = None
    """file that training begins with"""
    complete: bool = False
    """whether its weights are settled: a folder's, or those that the user's code gives it"""


def named_network(text: str) -> NamedNetwork:
    """The network that a recipe names, described in full."""
    kind, _, place = text.partition(":")
    if CODE.search(text):
        path, _, function = text.rpartition(":")
        source = {"kind": "python", "name": function, "code": f"{user_path(path).resolve()}:{function}"}
        return NamedNetwork(text, _described(source), complete=True)
    if kind not in FAMILIES or not place:
        raise UserError(
            f"model.network={text} names no network: {SPELLING}."
            + ("" if kind in FAMILIES else suggest(kind, FAMILIES))
        )
    return FAMILIES[kind](place)


def _smp(place: str) -> NamedNetwork:
    if _is_folder(place):
        config = _config(place, "_model_class")
        name = str(config["_model_class"])
        settings = {key: value for key, value in config.items() if not key.startswith("_")}
        settings |= {"classes": CHANNELS, "activation": None, "aux_params": None}
    else:
        name, _, encoder = place.partition("/")
        if "/" in encoder or Path(name).suffix or not name:
            raise UserError(
                f"model.network=smp:{place}: there is no such folder with a config.json, and networks of smp"
                " are named smp:Unet or smp:Unet/resnet18."
            )
        settings = {"encoder_name": encoder or "resnet34", "classes": CHANNELS}
    source = {"kind": "smp", "name": name, "config": settings | {"encoder_weights": None}}
    return _of_folder(place, f"smp:{name}/{settings.get('encoder_name')}", _described(source))


def _hf(place: str) -> NamedNetwork:
    if not _is_folder(place):
        if place not in HF_NETWORKS:
            raise UserError(
                f"model.network=hf:{place}: there is no such folder with a config.json, and no such network."
                f"{suggest(place, HF_NETWORKS)}"
            )
        source = {"kind": "hf", "config": {**HF_NETWORKS[place], **_without_head(place)}}
        return NamedNetwork(f"hf:{place}", _described(source))
    config = _config(place, "model_type")
    kept = {key: value for key, value in config.items() if key not in HEADS}
    source = {"kind": "hf", "config": {**kept, **_without_head(str(config["model_type"]))}}
    said = read_object(user_path(place) / "preprocessor_config.json") or {}
    numbers = {"mean": said.get("image_mean"), "std": said.get("image_std")}
    if not said.get("do_normalize", True):
        numbers = {"mean": [0.0] * 3, "std": [1.0] * 3}
    known = numbers if all(numbers.values()) else IMAGENET
    white = 1.0 if said.get("do_rescale", True) else 255.0
    return _of_folder(place, f"hf:{config['model_type']}", _described(source, {**known, "white": white}))


def _torchvision(place: str) -> NamedNetwork:
    builder, _, file = place.partition("@")
    source = {"kind": "torchvision", "builder": builder, "num_classes": CHANNELS}
    return NamedNetwork(f"torchvision:{builder}", _described(source), file or None, bool(file))


FAMILIES = {"smp": _smp, "hf": _hf, "torchvision": _torchvision}


def _without_head(name: str) -> dict[str, Any]:
    """A classifier of known size, and no head that only the network's own training needs."""
    auxiliary = {} if name.startswith(("segformer", "mobile")) else {"use_auxiliary_head": False}
    return {"num_labels": CHANNELS, **auxiliary}


def _described(source: dict[str, Any], numbers: Mapping[str, Any] = IMAGENET) -> dict[str, Any]:
    return {"source": source, "normalisation": {"white": 1.0, "bgr": False, **numbers}}


def _of_folder(place: str, name: str, described: dict[str, Any]) -> NamedNetwork:
    folder = user_path(place)
    if not _is_folder(place):
        return NamedNetwork(name, described)
    found = [str(folder / file) for file in WEIGHTS if (folder / file).is_file()]
    return NamedNetwork(name, described, found[0] if found else None, bool(found))


def _is_folder(place: str) -> bool:
    """Whether a place is a folder of save_pretrained, and not the name of a network."""
    return (user_path(place) / "config.json").is_file()


def _config(place: str, key: str) -> dict[str, Any]:
    """config.json of a folder of save_pretrained; `key` names the network in it."""
    folder = user_path(place)
    config = read_object(folder / "config.json")
    if config is None or key not in config:
        raise UserError(f"{folder} is no folder of save_pretrained: its config.json names no network.")
    return config
