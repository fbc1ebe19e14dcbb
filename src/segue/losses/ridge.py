"""Ridge regression of classes on features, in sums that can be added to (SegACIL / CFSSeg, arXiv 2412.10834).

The fit over all places seen so far needs two sums: A = sum u u^T and B = sum u e(label)^T, with u the
features of a place and e its class. Sums of later images, other steps or other machines are added; the result
does not depend on how they were grouped.

Shapes: N places, D features, K channels.
"""

from __future__ import annotations

import torch
from torch import Tensor

from segue.losses.pixel import IGNORE

SCALES = tuple(2.0 ** (step / 2) for step in range(15))
"""factors that may turn regression values into logits: 1 to 128"""


def ridge_sums(features_ND: Tensor, labels_N: Tensor, num_channels: int) -> tuple[Tensor, Tensor]:
    """A and B of some places, in double precision; ignored places have no part."""
    kept_N = labels_N != IGNORE
    features_ND = features_ND.double() * kept_N[:, None]
    rows_N = labels_N.masked_fill(~kept_N, 0).long()
    sums_KD = features_ND.new_zeros(num_channels, features_ND.shape[1]).index_add(0, rows_N, features_ND)
    return features_ND.t() @ features_ND, sums_KD.t()


def solve_ridge(a_DD: Tensor, b_DK: Tensor, ridge: float) -> Tensor:
    """W = (A + ridge I)^-1 B: D x K."""
    held_DD = a_DD + ridge * torch.eye(len(a_DD), dtype=a_DD.dtype, device=a_DD.device)
    return torch.cholesky_solve(b_DK, torch.linalg.cholesky(held_DD))


def scale_losses(values_NK: Tensor, labels_N: Tensor) -> Tensor:
    """The summed cross-entropy of regression values under each of `SCALES`, to choose their factor by."""
    losses = [
        torch.nn.functional.cross_entropy(scale * values_NK, labels_N, ignore_index=IGNORE, reduction="sum")
        for scale in SCALES
    ]
    return torch.stack(losses)
