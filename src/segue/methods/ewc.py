"""EWC: elastic weight consolidation (Kirkpatrick et al., PNAS 2017), as MiB runs it.

Importance is a running mean of squared gradients, in which the newest has nine tenths of the weight.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from segue.core.config import NonNegative
from segue.core.declaration import About, BenchmarkValues
from segue.losses import Fisher
from segue.methods._penalised import PenalisedMethod


@dataclass(frozen=True)
class Config:
    weight: NonNegative = 500.0
    """weight of the penalty"""
    alpha: Annotated[float, Field(gt=0, le=1)] = 0.9
    """share of the newest gradient in the running mean"""


class EWC(PenalisedMethod):
    Config = Config
    about = About(
        "Elastic weight consolidation", "Kirkpatrick et al., PNAS", 2017, published="1.3*", keeps="importance"
    )
    benchmark_values = (BenchmarkValues("scenes", None, {"method": {"params": {"weight": 50.0}}}),)

    def make_importance(self) -> Fisher:
        return Fisher(self.config.alpha)


METHOD = EWC
