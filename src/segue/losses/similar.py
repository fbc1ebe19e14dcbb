"""New classifiers made of all old ones (NeST, Xie et al., ECCV 2024).

The weight of a new class is a sum over old channels j of P_cj (M_cj * w_j), with * elementwise. M and P begin
with what old channels and new classes have in common, as the old network sees the new pixels.

Shapes: N places, O old channels with background, n new classes, D numbers of a classifier's row.
"""

from __future__ import annotations

import torch
from torch import Tensor


def shared_signs(
    features_ND: Tensor, probabilities_NO: Tensor, belongs_Nn: Tensor, rows_OD: Tensor
) -> Tensor:
    """Sum over the places of each new class of p_j [feature * w_j > 0], by dimension: n x O x D."""
    weighed_nNO = belongs_Nn.t()[:, :, None] * probabilities_NO
    signs = features_ND > 0, features_ND < 0
    above_nOD, below_nOD = (weighed_nNO.mT @ sign.to(rows_OD.dtype) for sign in signs)
    return above_nOD * (rows_OD > 0) + below_nOD * (rows_OD < 0)


def composed(masks_nOD: Tensor, shares_nO: Tensor, rows_OD: Tensor) -> Tensor:
    """The rows of the new classes: n x D."""
    return torch.einsum("no,nod,od->nd", shares_nO, masks_nOD, rows_OD)


def as_long_as(rows_nD: Tensor, others_OD: Tensor) -> Tensor:
    """Rows scaled so that their mean norm is that of others."""
    return rows_nD * (others_OD.norm(dim=1).mean() / rows_nD.norm(dim=1).mean().clamp_min(1e-12))
