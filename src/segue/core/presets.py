"""Presets: network, crop, batch, epochs and precision that fit a machine.

A preset is a layer of a recipe (engine/recipe.py). Its values become the recipe's own: a record does not know
where they came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from segue.core.errors import UserError, suggest
from segue.core.machine import CudaGpu, cuda_gpu

BFLOAT_CAPABILITY = 8
"""major compute capability from which on a GPU computes in bf16"""
SAID = "as said"
"""reason of a preset that was named"""
ROUNDED_TO = 32
"""a crop for small images is a multiple of this many pixels: the stride of most backbones"""


@dataclass(frozen=True)
class Preset:
    """Sections of a recipe, and for whom they are."""

    about: str
    values: Mapping[str, Any]
    frozen_stages: int = 0
    """first stages of the backbone that are frozen where its weights are pretrained"""


PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        "laptop": Preset(
            "a small network on a CPU",
            {
                "model": {"backbone": "mobilenetv2_100", "head": "lite", "output_stride": 16},
                "optim": {"lr_first": 0.01, "lr_next": 0.005, "head_factor": 5.0, "layer_factor": 5.0},
                "train": {
                    "epochs": 10,
                    "batch_size": 8,
                    "crop": 256,
                    "scale": (0.5, 1.0),
                    "precision": "fp32",
                },
            },
            frozen_stages=2,
        ),
        "gpu": Preset(
            "one GPU with 8 GB or more, mixed precision",
            {
                "model": {"backbone": "resnet50", "head": "deeplabv3", "output_stride": 16},
                "train": {"epochs": 30, "batch_size": 16, "crop": 512, "precision": "bf16"},
            },
        ),
        "paper": Preset("the published protocol: ResNet-101, crops of 512, batches of 24", {}),
    }
)


@dataclass(frozen=True)
class ChosenPreset:
    """A preset and the reason for it."""

    name: str
    why: str
    values: Mapping[str, Any]
    frozen_stages: int = 0


def choose_preset(name: Any, device: str) -> ChosenPreset:
    """The preset of this name, or the one for a device if there is none: `auto` is what the machine has."""
    gpu = cuda_gpu()
    if name is not None:
        if not isinstance(name, str) or name not in PRESETS:
            raise UserError(f"There is no preset '{name}'.{suggest(str(name), PRESETS)}")
        why = SAID
    elif device.startswith("cuda") or (device == "auto" and gpu is not None):
        name, why = "gpu", "there is a GPU" if device == "auto" else f"device {device}"
    else:
        name, why = "laptop", "there is no CUDA GPU" if device == "auto" else f"device {device}"
    preset = PRESETS[name]
    return ChosenPreset(name, why, _fitting(preset.values, gpu), preset.frozen_stages)


def _fitting(values: Mapping[str, Any], gpu: CudaGpu | None) -> Mapping[str, Any]:
    """GPUs before Ampere have fp16 instead of bf16."""
    train = values.get("train", {})
    if train.get("precision") == "bf16" and gpu is not None and gpu.capability < BFLOAT_CAPABILITY:
        return {**values, "train": {**train, "precision": "fp16"}}
    return values


def fitting_crop(crop: int, shorter_side: int) -> int:
    """A crop no larger than images are, for images whose shorter side has so many pixels."""
    return min(crop, max(shorter_side // ROUNDED_TO, 1) * ROUNDED_TO)
