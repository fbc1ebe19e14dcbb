"""Modules of other libraries from words: family, and the family's own settings. Weights are never fetched.

A description may come from a stranger (a model folder): it names builders and configs of installed libraries,
can neither run code nor name a file or an address, and asks for no weights. Files of one's own code
(`python`) and modules of the present program (`module`) are built by whoever has them.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from textwrap import shorten
from typing import Any

from torch import nn

from segue.core.errors import UserError, suggest
from segue.core.extras import needed
from segue.core.ordinary import user_path
from segue.models._hub import no_waiting
from segue.models.adopted.described import plain_settings


def build_module(source: Mapping[str, Any]) -> nn.Module:
    """The module that a source describes, with random weights."""
    kind = source.get("kind")
    if kind in ("module", "python"):
        raise UserError(
            f"The network {source.get('name', '')} is code of somebody's own, run only if you name it:"
            " segue.load(PATH, code='file.py:function')."
        )
    if kind not in BUILDERS:
        raise UserError(f"There is no family of networks '{kind}'.{suggest(str(kind), BUILDERS)}")
    return BUILDERS[kind](source)


def absolute(place: str) -> str:
    """`file.py:function` with the whole path of the file."""
    path, _, function = place.rpartition(":")
    return f"{user_path(path).resolve()}:{function}"


def own_code(place: str) -> nn.Module:
    """The module that a function of the user's own file gives: `file.py:function`. It runs that file."""
    path, _, function = place.rpartition(":")
    file = user_path(path)
    if not path or not file.is_file():
        raise UserError(f"{place}: name a Python file and a function in it, such as net.py:build.")
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    assert spec is not None and spec.loader is not None
    code = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(code)
    build = getattr(code, function, None)
    if not callable(build):
        names = [name for name, value in vars(code).items() if callable(value) and not name.startswith("_")]
        raise UserError(f"{file} has no function '{function}'.{suggest(function, names)}")
    module = build()
    if not isinstance(module, nn.Module):
        raise UserError(f"{place} gives {type(module).__name__}, not a torch.nn.Module.")
    return module


def torchvision_module(source: Mapping[str, Any]) -> nn.Module:
    """{"kind": "torchvision", "builder": NAME, "num_classes": K}"""
    from torchvision import models

    known = models.list_models(module=models.segmentation)
    name = source["builder"]
    if name not in known:
        raise UserError(f"torchvision has no segmentation network '{name}'.{suggest(str(name), known)}")
    settings = {"weights": None, "weights_backbone": None, "num_classes": int(source["num_classes"])}
    if not str(name).startswith("lraspp"):
        settings["aux_loss"] = False
    return models.get_model(name, **settings)


def smp_module(source: Mapping[str, Any], fetch: bool = False) -> nn.Module:
    """{"kind": "smp", "name": "Unet", "config": what the constructor takes}

    `fetch`: smp downloads weights of the encoder, which a user asks for, never a description.
    """
    smp = needed("segmentation_models_pytorch", "smp", "The network")
    config = plain_settings({**source["config"], "encoder_weights": None})
    kinds = {kind.__name__: kind for kind in smp.MODEL_ARCHITECTURES_MAPPING.values()}
    name, encoder = str(source["name"]), str(config.get("encoder_name", ""))
    if name not in kinds:
        raise UserError(f"smp has no network '{name}'.{suggest(name, kinds)}")
    if not encoder.startswith("tu-") and encoder not in (known := smp.encoders.get_encoder_names()):
        raise UserError(f"smp has no encoder '{encoder}'.{suggest(encoder, known)} Those of timm: tu-NAME.")
    if fetch:
        config["encoder_weights"] = True if encoder.startswith("tu-") else "imagenet"
    try:
        with no_waiting() if fetch else nullcontext():
            return kinds[name](**config)
    except OSError as error:
        raise UserError(
            f"smp could not fetch the weights of {encoder}: {_reason(error)} Give a local file with"
            " model.weights=FILE."
        ) from error
    except (TypeError, ValueError, KeyError, RuntimeError, AttributeError) as error:
        raise UserError(f"smp cannot build {name} with the encoder {encoder}: {_reason(error)}") from error


def hf_module(source: Mapping[str, Any]) -> nn.Module:
    """{"kind": "hf", "config": config.json}"""
    described = hf_config(source)
    transformers = needed("transformers", "hf", "The network")
    try:
        return transformers.AutoModelForSemanticSegmentation.from_config(described, trust_remote_code=False)
    except Exception as error:  # whatever a library raises for settings that it did not make
        kind = source["config"].get("model_type")
        raise UserError(f"transformers cannot build '{kind}' for segmentation: {_reason(error)}") from error


def hf_config(source: Mapping[str, Any]) -> Any:
    """The config, if it fetches nothing."""
    transformers = needed("transformers", "hf", "The network")
    config = dict(source["config"])
    if config.get("backbone") is not None or config.get("use_pretrained_backbone"):
        raise UserError(
            f"The config names a backbone to be fetched ({config.get('backbone')}): only networks are built"
            " whose config describes all of it (backbone_config)."
        )
    config = plain_settings(config)
    kind = str(config.pop("model_type", ""))
    try:
        return transformers.AutoConfig.for_model(kind, **config)
    except Exception as error:  # whatever a library raises for settings that it did not make
        raise UserError(f"transformers knows no network '{kind}': {_reason(error)}") from error


def _reason(error: Exception) -> str:
    return shorten(str(error), 300)


BUILDERS = {"torchvision": torchvision_module, "smp": smp_module, "hf": hf_module}
