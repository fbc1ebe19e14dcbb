"""`segue.adopt`: a model from a network that was trained elsewhere."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import nn

from segue.core.config import ModelConfig
from segue.core.errors import UserError, suggest
from segue.deploy.families import describe, read, without_auxiliary
from segue.deploy.model import Model
from segue.deploy.prepare import Preparation
from segue.models.adopted.find import find_parts
from segue.models.adopted.network import AdoptedNetwork
from segue.models.adopted.parts import Adoption, Normalisation, Parts
from segue.models.weights_file import first_nan

BACKGROUNDS = frozenset({"background", "__background__", "bg", "unlabeled", "unlabelled"})
"""names by which a background is known"""
NO_BACKGROUND = "none"
"""word in the place of a name where no class plays background"""


def adopt(
    module: nn.Module,
    classes: Sequence[str],
    mean: Sequence[float],
    std: Sequence[float],
    white: float = 1.0,
    bgr: bool = False,
    background: str | None = None,
    threshold: float = 0.5,
    size: int | None = None,
    classifier: str | Sequence[str] | None = None,
    features: str | None = None,
    encoder: str | None = None,
    source: dict[str, Any] | None = None,
) -> Model:
    """Take in a network that was trained elsewhere, as a model that can predict, be extended and be saved.

    `classes` are the names of its channels, `background` the one that plays background, unless it is called
    so. Without any, or with background="none", unlabelled pixels of new images count as some old class, and
    no pixel is ever called background (docs/protocol.md). The network wants images as (x - mean) / std, where
    x goes from 0 to `white` (1 or 255), red first unless `bgr`; `size` is the length of the shorter side that
    it was trained for. Its classifier, the map before it and the last map of its encoder are found by proof;
    `print(model.network.parts)` shows them, and their paths can be named instead. `threshold` is that of a
    network with a single channel. The module itself stays as it is.

    Examples:
        >>> import segue, torch, torchvision
        >>> net = torchvision.models.segmentation.lraspp_mobilenet_v3_large(
        ...     weights=None, weights_backbone=None, num_classes=3
        ... )
        >>> model = segue.adopt(net, ["background", "cat", "dog"], mean=[0.5] * 3, std=[0.5] * 3)
        >>> print(model.network.parts)
        classifier  classifier.low_classifier (Conv2d 40 -> 3, 1 x 1)
        classifier  classifier.high_classifier (Conv2d 128 -> 3, 1 x 1)
        h           input of classifier.low_classifier: 168 channels at 1/8
        z           output of backbone at high: 960 channels at 1/16
        answer      sum of the classifiers, bilinear x 8
        >>> model.predict("photo.jpg").classes
        ('background', 'cat', 'dog')
    """
    own = without_auxiliary(copy.deepcopy(module)).eval()
    if (broken := first_nan(own.state_dict())) is not None:
        raise UserError(f"The network cannot be adopted: '{broken}' holds NaN. Are its weights damaged?")
    parts = find_parts(own, classifier, features, encoder)
    channels = int(own.get_submodule(parts.classifiers[0]).out_channels)  # type: ignore[arg-type]
    names, order, closed = channel_order(classes, channels, background)
    adoption = Adoption(
        source=source if source is not None else describe(own),
        parts=parts,
        normalisation=normalisation_of(mean, std, white, bgr),
        order=order,
        binary=channels == 1,
        closed=closed,
    )
    network = AdoptedNetwork.with_rows(_config(adoption), own)
    if threshold != 0.5:
        _shift(network, parts, channels, threshold)
    return Model(network.eval(), names, Preparation(size), closed=closed)


def adopt_from(
    text: str,
    classes: Sequence[str] | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    **named: Any,
) -> Model:
    """Adopt torchvision:NAME@FILE, smp:FOLDER, hf:FOLDER or file.py:function, whose code is then run.

    What the files say of names and normalisation is taken from them, unless it is said here; what is said
    nowhere is asked for. `named` are further words for `adopt`.
    """
    found = read(text)
    classes = classes or found.classes
    mean, std = mean or found.mean, std or found.std
    if classes is None:
        raise UserError(
            f"{text} does not tell the names of its channels. {_say('classes', 'background,cat,dog')}"
        )
    if mean is None or std is None:
        raise UserError(
            f"{text} does not tell how its images are normalised, and a wrong guess would cost accuracy. Say"
            f" mean and std as it was trained with. {_say('mean', '0.485,0.456,0.406 adopt.std=...')}"
        )
    usual: dict[str, Any] = {"white": found.white, "size": found.size}
    if found.no_background:
        usual["background"] = NO_BACKGROUND
    if found.source["kind"] == "python":
        usual["source"] = found.source
    return adopt(found.module, classes, mean, std, **{**usual, **named})


def _say(key: str, value: str) -> str:
    return (
        f"In Python {key}=[...]; after segue extend or export adopt.{key}={value}. Other commands take the"
        " model folder that segue export writes."
    )


def _config(adoption: Adoption) -> ModelConfig:
    """The section `model` of a recipe; the name of the network stands where that of a backbone does."""
    source = adoption.source
    config = source.get("config", {})
    name = source.get("builder") or source.get("name") or config.get("model_type") or source.get("code", "")
    return ModelConfig(backbone=f"{source['kind']}:{name}", network=asdict(adoption))


def channel_order(
    classes: Sequence[str], channels: int, background: str | None
) -> tuple[tuple[str, ...], list[int], bool]:
    """Names of the channels, background first, where each one was, and whether there is no background."""
    names = [str(name) for name in classes]
    if channels == 1:
        if len(names) not in (1, 2):
            raise UserError(f"The network has one channel: name its class, not {len(names)} classes.")
        return (*(names if len(names) == 2 else ["background", *names]),), [], False
    if len(names) != channels:
        raise UserError(
            f"The network has {channels} channels and {len(names)} classes are named: name every channel,"
            " background too, in the order of the channels."
        )
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"Two channels are called '{twice[0]}': every class needs a name of its own.")
    if background is None:
        known = [name for name in names if name.casefold() in BACKGROUNDS]
        if len(known) > 1:
            raise UserError(
                f"Background may be {' or '.join(known)}: name the class that plays it,"
                f" background='{known[0]}' (adopt.background={known[0]})."
            )
        background = known[0] if known else NO_BACKGROUND
    if background == NO_BACKGROUND and background not in names:
        return _with_front(names), [], True
    if background not in names:
        raise UserError(f"The network has no class '{background}'.{suggest(background, names)}")
    first = names.index(background)
    order = [first, *(channel for channel in range(channels) if channel != first)]
    return tuple(names[channel] for channel in order), order if first else [], False


def _with_front(names: Sequence[str]) -> tuple[str, ...]:
    """Names of the channels behind one that is never the answer."""
    front = next(name for name in ("background", "no class") if name not in names)
    return (front, *names)


def normalisation_of(mean: Sequence[float], std: Sequence[float], white: float, bgr: bool) -> Normalisation:
    for name, values in (("mean", mean), ("std", std)):
        if len(values) != 3 or not all(math.isfinite(value) for value in values):
            raise UserError(f"{name} is {list(values)}: three numbers are needed, one per colour.")
    if min(std) <= 0:
        raise UserError(f"std is {list(std)}: it should be above 0.")
    if white not in (1, 255):
        raise UserError(f"white is {white}: the value of white before mean and std is 1 or 255.")
    if white == 1 and max(*mean, *std) > 2:
        raise UserError(
            f"mean {list(mean)} and std {list(std)} look like those of images from 0 to 255: say white=255."
        )
    return Normalisation([float(x) for x in mean], [float(x) for x in std], float(white), bgr)


def _shift(network: AdoptedNetwork, parts: Parts, channels: int, threshold: float) -> None:
    """Another threshold than one half, as a bias of the class."""
    bias: Any = network.classifier.layers[0].parts[0].bias
    if channels != 1 or bias is None or not 0 < threshold < 1:
        raise UserError(
            f"A threshold ({threshold}) is for a network with a single channel and a bias, between 0 and 1."
        )
    with torch.no_grad():
        bias[1] -= math.log(threshold / (1 - threshold))
