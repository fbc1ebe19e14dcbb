"""Losses as pure functions. Pixel losses take logits at the model's stride and labels at full resolution."""

from segue.losses.features import (
    attend,
    attentive_distance,
    channel_attention,
    spatial_attention,
)
from segue.losses.pixel import (
    background_balance,
    cross_entropy,
    unbiased_cross_entropy,
    unbiased_distillation,
    upsample,
)

__all__ = [
    "attend",
    "attentive_distance",
    "background_balance",
    "channel_attention",
    "cross_entropy",
    "spatial_attention",
    "unbiased_cross_entropy",
    "unbiased_distillation",
    "upsample",
]
