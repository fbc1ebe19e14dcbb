"""RW: Riemannian walk (Chaudhry et al., ECCV 2018), as MiB runs it.

Importance is that of EWC plus a path score measured in its metric; both are brought to [0, 1] first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from segue.core.config import Count, NonNegative
from segue.core.declaration import About, BenchmarkValues
from segue.losses import RiemannianWalk
from segue.methods._penalised import PenalisedMethod


@dataclass(frozen=True)
class Config:
    weight: NonNegative = 100.0
    """weight of the penalty"""
    alpha: Annotated[float, Field(gt=0, le=1)] = 0.9
    """share of the newest gradient in the running mean"""
    every: Count = 10
    """iterations between two measurements of the path"""


class RW(PenalisedMethod):
    Config = Config
    about = About("Riemannian walk", "Chaudhry et al., ECCV", 2018, published="1.3*", keeps="importance")
    benchmark_values = (BenchmarkValues("scenes", None, {"method": {"params": {"weight": 10.0}}}),)

    def make_importance(self) -> RiemannianWalk:
        return RiemannianWalk(self.config.alpha, self.config.every)


METHOD = RW
