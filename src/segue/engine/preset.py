"""The layer of a recipe that a preset makes: which preset it is, and what of it applies.

A preset is taken by itself only where nobody has named a network: neither the recipe file nor a data set's
own protocol, such as that of `scenes`. Published protocols (voc, ade20k, cityscapes) give way to it: they are
the preset `paper`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from segue.core.config import validate
from segue.core.errors import UserError
from segue.core.overrides import merge
from segue.core.presets import PRESETS, SAID, ChosenPreset, choose_preset, fitting_crop
from segue.data.datasets.base import SegDataset
from segue.data.sizes import usual_shorter_side

KEY = "preset"
"""word of a recipe file or command that names one; no part of a complete recipe"""


@dataclass(frozen=True)
class PresetRequest:
    """What was said of presets, and who hears which one it is."""

    name: Any
    """name of a preset; None: none was said"""
    device: str
    """device that chooses where none was said"""
    complete: bool
    """a recipe file names its network"""
    say: Callable[[str], None]

    def lay(
        self, kind: type[SegDataset], below: Mapping[str, Any], asked: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The layers `below` what was asked for, with the preset among them."""
        own = _named(kind.protocol, "model", "backbone") and kind.published is None
        if self.name is None and (self.complete or own):
            return dict(below)
        chosen = choose_preset(self.name, self.device)
        values = dict(chosen.values)
        layers = merge(below, values) if kind.published is not None else merge(values, below)
        layers = _fit_crop(kind, layers, asked, values)
        layers = _freeze(layers, asked, chosen)
        self.say(_sentence(chosen, merge(layers, asked), kind.published is not None))
        return layers


def _fit_crop(
    kind: type[SegDataset], layers: dict[str, Any], asked: Mapping[str, Any], values: Mapping[str, Any]
) -> dict[str, Any]:
    """A preset's crop is no larger than images of one's own are."""
    crop = values.get("train", {}).get("crop")
    said = _named(asked, "train", "crop") or _named(kind.protocol, "train", "crop")
    if crop is None or said or kind.published is not None:
        return layers
    try:
        options = validate(kind.Config, asked.get("data") or {}, "data")
    except UserError:  # it is said when the whole recipe is checked
        return layers
    side = usual_shorter_side(kind, options)
    return layers if side is None else merge(layers, {"train": {"crop": fitting_crop(crop, side)}})


def _freeze(layers: dict[str, Any], asked: Mapping[str, Any], chosen: ChosenPreset) -> dict[str, Any]:
    """First stages of the preset's own network are frozen if they have learned something."""
    model = merge(layers, asked).get("model") or {}
    pretrained = isinstance(model, Mapping) and (model.get("weights") or model.get("pretrained") is True)
    whose = chosen.values.get("model", {}).get("backbone")
    other = model.get("network") is not None or model.get("backbone") != whose
    if not pretrained or not chosen.frozen_stages or other:
        return layers
    return merge(layers, {"model": {"frozen_stages": chosen.frozen_stages}})


def _named(values: Mapping[str, Any], section: str, key: str) -> bool:
    part = values.get(section)
    return isinstance(part, Mapping) and part.get(key) is not None


def names_network(values: Mapping[str, Any]) -> bool:
    return _named(values, "model", "backbone") or _named(values, "model", "network")


def _sentence(chosen: ChosenPreset, values: Mapping[str, Any], published: bool) -> str:
    """Which preset it is and why, what it says, and which others there are if nobody chose it."""
    start = f"Preset {chosen.name} ({chosen.why})"
    if chosen.name == "paper":
        return f"{start}: the published protocol."
    model, train = values["model"], values["train"]
    network = model.get("network") or model["backbone"]
    what = f"{network}, crop {train['crop']}, batch {train['batch_size']}, {train['epochs']} epochs"
    others = " or ".join(f"preset={name}" for name in PRESETS if name not in (chosen.name, "paper"))
    paper = "The published protocol: preset=paper." if published else f"Or choose {others}, preset=paper."
    return f"{start}: {what}, {train['precision']}." + ("" if chosen.why == SAID else f" {paper}")
