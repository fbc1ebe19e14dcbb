"""The choices of the continual attentive fusion layer (models/caf.py), readable without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from segue.core.config import Count


@dataclass(frozen=True)
class LayerConfig:
    """The fusion layer. The first three switch its parts; without any of them there is no layer."""

    projection: bool = True
    """non-local projection; off: v = z"""
    fusion: bool = True
    """features of the old model are fused in"""
    attention: bool = True
    """structured attention; off: A = 0"""
    carrier: Literal["v", "z"] = "v"
    """features that the attention raises: the fused v, or z itself (attention off: z + v)"""
    residual: bool = True
    """the projection is added to z"""
    scaled: bool = True
    """products of queries and keys divided by sqrt(D)"""
    output: Literal["conv", "norm", "none"] = "conv"
    """end of the projection: a convolution that starts at zero, one whose batch norm does, or nothing"""
    bottleneck: Count = 2
    """channels of z per channel inside the projection"""
    pool: Literal["before", "after", "none"] = "before"
    """2 x 2 max-pooling of keys and values, before or after their convolution"""
    start: Literal["new", "random"] = "new"
    """the fusion starts as "take the new features", or at random"""
    channel: Literal["excitation", "linear"] = "excitation"
    """A_ch: squeeze and excitation with a sigmoid, or a linear map of the mean"""
    spatial: Literal["contrast", "energy", "linear"] = "contrast"
    """A_sp: a convolution against its mean over places, bounded; one of squares, normalised; one alone"""

    def __post_init__(self) -> None:
        if self.projection and self.carrier == "v" and not self.residual and self.output != "none":
            raise ValueError("carrier v without residual begins with features that are all zero")
        if self.projection and self.carrier == "z" and self.residual and not self.attention:
            raise ValueError("carrier z without attention adds v to z, so the projection cannot be residual")

    @property
    def enabled(self) -> bool:
        return self.projection or self.fusion or self.attention
