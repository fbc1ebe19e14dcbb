"""Losses as pure functions, and trackers of importance. Pixel losses take logits at the model's stride and
labels at full resolution."""

from segue.losses._strips import finest, labels_of_map, upsample, wide
from segue.losses.features import (
    attend,
    attentive_distance,
    channel_attention,
    spatial_attention,
)
from segue.losses.importance import Fisher, PathIntegral, RiemannianWalk
from segue.losses.pixel import (
    background_balance,
    binary_cross_entropy,
    binary_distillation,
    cross_entropy,
    distillation,
    distilled_binary_cross_entropy,
    distilled_cross_entropy,
    incremental_losses,
    unbiased_cross_entropy,
    unbiased_distillation,
)
from segue.losses.pooled import local_pod

__all__ = [
    "Fisher",
    "PathIntegral",
    "RiemannianWalk",
    "attend",
    "attentive_distance",
    "background_balance",
    "binary_cross_entropy",
    "binary_distillation",
    "channel_attention",
    "cross_entropy",
    "distillation",
    "distilled_binary_cross_entropy",
    "distilled_cross_entropy",
    "finest",
    "incremental_losses",
    "labels_of_map",
    "local_pod",
    "spatial_attention",
    "unbiased_cross_entropy",
    "unbiased_distillation",
    "upsample",
    "wide",
]
