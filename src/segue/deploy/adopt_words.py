"""What the command line says of a network from elsewhere (`adopt.KEY=VALUE`), and what it is told back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from segue.core.config import validate
from segue.core.errors import UserError, reason
from segue.core.ordinary import read_ordinary, user_path
from segue.core.overrides import parse_overrides
from segue.deploy.model import Model
from segue.deploy.teachers.outer_model import OuterModel
from segue.models.adopted.network import AdoptedNetwork

SECTION = "adopt"
LIST_ENDING = ".txt"
"""ending of a file with a name per line"""


@dataclass(frozen=True)
class Words:
    """The words `adopt.KEY=VALUE`; lists are written with commas."""

    classes: str | list[str] | None = None
    """names of the channels in their order, or a .txt file with one per line"""
    mean: str | list[float] | None = None
    """mean of the images that the network was trained on, red, green and blue"""
    std: str | list[float] | None = None
    """standard deviation of these images"""
    white: float | None = None
    """value of white before mean and std: 1 or 255"""
    bgr: bool | None = None
    """blue first"""
    background: str | None = None
    """class that plays background; none: no class does"""
    threshold: float | None = None
    """least probability of the class of a network with a single channel"""
    size: int | None = None
    """length of the shorter side of the images that the network was trained for"""
    classifier: str | None = None
    """path of the layer that gives the logits; several, if their outputs are added up"""
    features: str | None = None
    """path of the module that hands out what the classifier sees"""
    encoder: str | None = None
    """path of the module that hands out the encoder's last map"""


def adopt_words(words: Iterable[str]) -> tuple[dict[str, Any], list[str]]:
    """What words say for `segue.adopt`, and the other words."""
    words = list(words)
    own = [word for word in words if word.startswith(f"{SECTION}.")]
    said = validate(Words, parse_overrides(own).get(SECTION, {}), SECTION)
    values = {name: value for name, value in vars(said).items() if value is not None}
    for name in ("mean", "std"):
        if isinstance(values.get(name), str):
            values[name] = _numbers(name, values[name])
    if isinstance(values.get("classes"), str):
        values["classes"] = _names(values["classes"])
    if "classifier" in values:
        values["classifier"] = values["classifier"].split(",")
    return values, [word for word in words if word not in own]


def _numbers(name: str, text: str) -> list[float]:
    try:
        return [float(word) for word in text.split(",")]
    except ValueError as error:
        raise UserError(f"{SECTION}.{name} takes three numbers such as 0.5,0.5,0.5, not '{text}'.") from error


def _names(text: str) -> list[str]:
    if not text.endswith(LIST_ENDING):
        return [name.strip() for name in text.split(",")]
    path = user_path(text)
    try:
        lines = read_ordinary(path).decode("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{path} cannot be read as a list of names, one per line: {reason(error)}."
        ) from error
    return [line.strip() for line in lines if line.strip()]


def found_table(model: Model, text: str, said: Mapping[str, Any]) -> list[str]:
    """The parts of a model adopted from `text`, how it sees images, its background and classes."""
    network = model.network
    assert isinstance(network, AdoptedNetwork)
    numbers = network.adoption.normalisation
    mean, std = (", ".join(f"{value:g}" for value in values) for values in (numbers.mean, numbers.std))
    images = f"{'BGR' if numbers.bgr else 'RGB'} 0..{numbers.white:g}, mean {mean}, std {std}"
    if text.startswith("torchvision:") and "mean" not in said:
        images += " (assumed: that of torchvision's own weights; otherwise adopt.mean=... adopt.std=...)"
    background = model.classes[0]
    if network.closed:
        background = "none: unlabelled pixels mean some old class (otherwise adopt.background=NAME)"
    classes = ", ".join(model.classes[1:6]) + (" ..." if len(model.classes) > 6 else "")
    return _table([*network.parts.told, ["images", images], ["background", background], ["classes", classes]])


def teacher_table(teacher: OuterModel) -> list[str]:
    """What is known of a model by its outputs."""
    background = "none: unlabelled pixels mean some old class" if teacher.closed else teacher.classes[0]
    classes = ", ".join(teacher.classes[1:6]) + (" ..." if len(teacher.classes) > 6 else "")
    return _table([["teacher", f"{teacher.place}, its {teacher.kind} alone"], ["background", background],
                   ["classes", classes]])  # fmt: skip


def _table(rows: list[list[str]]) -> list[str]:
    width = max(len(name) for name, _ in rows)
    return [f"{name:<{width}}  {text}" for name, text in rows]
