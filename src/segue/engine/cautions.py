"""What makes a run another experiment than its name says: told before training, not after."""

from __future__ import annotations

import torch

from segue.core.config import RunConfig

LEAST_SHARE = 0.9
"""share of the published images below which a data set is said to be incomplete"""


def cautions(config: RunConfig, images: int, published: int | None, slow_bf16: bool = False) -> list[str]:
    """Remarks on a recipe whose data set has so many training images."""
    found = []
    if published is not None and images < LEAST_SHARE * published:
        missing = (
            " (SBD's masks are missing: segue data fetch voc tells how)"
            if config.scenario.dataset == "voc"
            else ""
        )
        found.append(
            f"{config.scenario.dataset} has {images:,} training images here, published results have"
            f" {published:,}{missing}: scores cannot be compared with them."
        )
    if config.train.accumulate > 1 and config.train.norm == "batch":
        found.append(
            f"train.accumulate={config.train.accumulate} with train.norm=batch: batch norm learns from"
            " micro-batches, not from whole batches. Scores are not those of the same batch at once."
        )
    if config.train.precision == "bf16" and slow_bf16:
        found.append(
            "train.precision=bf16: this processor emulates bf16, which takes many times longer."
            " train.precision=fp32 is the quick one here."
        )
    return found


def emulates_bf16(device: torch.device) -> bool:
    """Whether bf16 is emulated: on CPUs of the x86 family without instructions for it."""
    cpu = torch.cpu
    has = cpu._is_avx512_bf16_supported() or cpu._is_amx_tile_supported()
    return device.type == "cpu" and cpu._is_avx2_supported() and not has
