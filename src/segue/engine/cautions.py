"""What makes a run another experiment than its name says: told before training, not after."""

from __future__ import annotations

from segue.core.config import RunConfig

LEAST_SHARE = 0.9
"""share of the published images below which a data set is said to be incomplete"""


def cautions(config: RunConfig, images: int, published: int | None) -> list[str]:
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
    return found
