"""Well-known GPUs: memory, and dense peaks by the vendor's data sheets (figures with sparsity halved).

Sources, all NVIDIA: T4 data sheet (2019); V100 data sheet (2020, SXM2); Turing (2018), GA102 (2021) and Ada
(2023) architecture white papers, appendix A, for the RTX cards, with FP32 accumulation; A100 (2022), L4
(2023), L40S (2023) and H100 (2023, SXM) data sheets.
"""

from __future__ import annotations

from dataclasses import dataclass

from segue.core.errors import UserError, suggest

UTILISATION = 0.3
"""share of a GPU's peak that training reaches, unless somebody says another"""


@dataclass(frozen=True)
class Gpu:
    """Peaks are in TFLOPS; None: the card cannot."""

    name: str
    memory: int
    """GiB"""
    fp32: float
    tf32: float | None
    half: float
    """fp16, and bf16 where there is TF32: both came with Ampere"""

    def peak(self, precision: str) -> tuple[float, str]:
        """FLOPs a second at a recipe's precision, and what they are computed in.

        fp32 means TF32 where it exists: torch's default for convolutions, which are nearly all there is.
        """
        if precision == "fp16" or (precision == "bf16" and self.tf32 is not None):
            return self.half * 1e12, precision
        return (self.tf32 or self.fp32) * 1e12, "tf32" if self.tf32 is not None else "fp32"


GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu("t4", 16, 8.1, None, 65),
        Gpu("v100-16", 16, 15.7, None, 125),
        Gpu("v100-32", 32, 15.7, None, 125),
        Gpu("rtx2080ti", 11, 13.4, None, 53.8),
        Gpu("rtx3090", 24, 35.6, 35.6, 71),
        Gpu("rtx4090", 24, 82.6, 82.6, 165.2),
        Gpu("a6000", 48, 38.7, 77.4, 154.8),
        Gpu("l4", 24, 30.3, 60, 121),
        Gpu("l40s", 48, 91.6, 183, 362),
        Gpu("a100-40", 40, 19.5, 156, 312),
        Gpu("a100-80", 80, 19.5, 156, 312),
        Gpu("h100", 80, 67, 494.5, 989.5),
    )
}


def find_gpu(name: str) -> Gpu:
    """By name, however it is written: RTX 3090, rtx-3090. Of two sizes the smaller, if none is said."""
    plain = "".join(filter(str.isalnum, name.lower())).removesuffix("gb")
    plain = plain.removeprefix("nvidia").removeprefix("geforce")
    for gpu in GPUS.values():
        if plain in (gpu.name.replace("-", ""), gpu.name.partition("-")[0]):
            return gpu
    raise UserError(f"The GPU '{name}' is not known.{suggest(name.lower(), GPUS)}")
