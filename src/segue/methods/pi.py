"""PI: path integral, also known as synaptic intelligence (Zenke et al., ICML 2017), as MiB runs it.

Importance is how much a parameter's way through a step lowered the loss, per squared distance travelled.
"""

from __future__ import annotations

from dataclasses import dataclass

from segue.core.config import NonNegative
from segue.core.declaration import About, BenchmarkValues
from segue.losses import PathIntegral
from segue.methods._penalised import PenalisedMethod


@dataclass(frozen=True)
class Config:
    weight: NonNegative = 500.0
    """weight of the penalty"""


class PI(PenalisedMethod):
    Config = Config
    about = About("Path integral", "Zenke et al., ICML", 2017, published="0.4*", keeps="importance")
    benchmark_values = (BenchmarkValues("scenes", None, {"method": {"params": {"weight": 5.0}}}),)

    def make_importance(self) -> PathIntegral:
        return PathIntegral()


METHOD = PI
