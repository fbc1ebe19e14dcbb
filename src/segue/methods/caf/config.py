"""The settings of CAF: every choice between paper and released code, and the sets of them with a name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

from segue.core.config import NonNegative, Positive, added
from segue.core.layer_config import LayerConfig

MOST_PLACES = 1_000_000
"""how many places of feature maps may be kept: hundreds of numbers each"""


@dataclass(frozen=True)
class AdConfig:
    """Attentive distillation."""

    maps: Literal["z+h", "z", "h"] = "z+h"
    """features that are compared: encoder (after the layer), head, or both"""
    channel: bool = True
    """weighted channel by channel (eq. 5)"""
    spatial: bool = True
    """weighted place by place (eq. 6)"""
    form: Literal["product", "printed"] = "product"
    """a (1 + s) m as coded, or (1 + s a) m as printed (eq. 7)"""
    detach: bool = True
    """no gradient through the spatial weights"""
    norm: Literal["teacher", "map", "mean"] = "teacher"
    """distance relative to the teacher's map, to 32 x 32 maps, or the plain mean"""
    target: Literal["fused", "raw"] = "fused"
    """the teacher's z after its own layer, or before it"""
    excitation: Literal["frozen", "trained"] = "frozen"
    """the weights of eq. 5: as drawn, or trained in the student"""


@dataclass(frozen=True)
class RehearsalConfig:
    """Features of earlier steps, kept or imagined, rehearsed by the classifier (not in the paper); beside
    them new classes of the batch, which teach the network too."""

    weight: NonNegative = 1.0
    """weight of the cross-entropy on these features; 0: there are none"""
    store: Literal["features", "gaussians", "mixtures", "imagined"] = added("features")
    """source of the features: kept as they were, drawn from a Gaussian or three per class that are kept, or
    imagined from the teacher alone, so that nothing is kept"""
    per_class: Annotated[int, Field(ge=1, le=MOST_PLACES)] = 64
    """places of feature maps that are kept of each class, or drawn in each iteration"""
    background: Annotated[int, Field(ge=0, le=MOST_PLACES)] = 1024
    """places of feature maps that are kept of background, all from step 0, or imagined in each iteration"""

    keeps = "features"

    @property
    def kept(self) -> str:
        """In words what is kept; nothing if it is off."""
        return self.keeps if self.weight and self.store != "imagined" else ""


@dataclass(frozen=True)
class Config:
    variant: Literal["segue", "paper", "official", "official_head"] = "segue"
    """named set of choices that the fields below start from"""
    kd_weight: NonNegative = 1.0
    """lambda_D: weight of the distillation of outputs"""
    kd_norm: Literal["growth", "channels"] = "growth"
    """scale of L_D: the sum over old channels (eq. 9) times sqrt(seen / new classes), or their mean"""
    labels: Literal["unbiased", "selective"] = added("unbiased")
    """meaning of the label background: any old class as well, or what the teacher is sure of (MBS)"""
    kd_target: Literal["unbiased", "guided"] = added("unbiased")
    """meaning of the teacher's background: any new class as well, or the new class that is labelled (MBS)"""
    balanced: bool = False
    """weight gamma (eq. 12) for the background term of this distillation"""
    gamma: Literal["logit", "ratio", "literal"] = "ratio"
    """reading of gamma (eq. 11)"""
    gamma_max: Positive | None = 1.0
    """largest gamma"""
    ad_weight: NonNegative = 1.0
    """lambda_AD: weight of the attentive distillation"""
    ad: AdConfig = field(default_factory=AdConfig)
    layer: LayerConfig = field(default_factory=LayerConfig)
    layer_since: Literal[0, 1] = 0
    """the step that brings the layer; 1: step 0 is the bare network's, as that of other methods (--from)"""
    old_features: Literal["raw", "fused"] = "raw"
    """features of the teacher for the layer: z before or after the teacher's own layer"""
    rehearsal: RehearsalConfig = field(default_factory=RehearsalConfig)
    modality_dropout: Annotated[float, Field(ge=0, le=1)] = 0.5
    """share of iterations in which the layer does without the old features, as it will at test time"""

    @property
    def layered_start(self) -> bool:
        """Whether step 0 is trained with the layer."""
        return self.layer.enabled and self.layer_since == 0


PUBLISHED = {"kd_weight": 10.0, "kd_norm": "channels", "rehearsal": {"weight": 0.0}}
NO_LAYER = {"projection": False, "fusion": False, "attention": False}
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "segue": {},
    "paper": {
        **PUBLISHED, "ad_weight": 1000.0, "balanced": True, "gamma": "literal", "gamma_max": None,
        "modality_dropout": 0.0,
        "layer": {"output": "none", "pool": "none", "channel": "linear", "spatial": "linear"},
        "ad": {"form": "printed", "detach": False, "norm": "map", "target": "raw",
               "excitation": "trained"},
    },
    "official": {
        **PUBLISHED, "ad_weight": 1000.0, "balanced": True, "gamma": "logit", "gamma_max": None,
        "modality_dropout": 0.0, "old_features": "fused",
        "layer": {"carrier": "z", "residual": False, "scaled": False, "output": "norm", "pool": "after",
                  "start": "random", "spatial": "energy"},
        "ad": {"norm": "map"},
    },
    "official_head": {
        **PUBLISHED, "ad_weight": 1000.0, "balanced": False, "layer": NO_LAYER,
        "ad": {"channel": False, "spatial": False, "norm": "mean"},
    },
}  # fmt: skip
