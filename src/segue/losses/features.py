"""Attentive feature distillation (CAF, Yang et al. 2022, section III-B).

Shapes: B batch, C channels, h x w. A map m is weighted by what it attends to, channel by channel (squeeze and
excitation) and place by place (its energy), before new and old are compared.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from segue.losses._strips import wide

EPS = 1e-12
PAPER_CELLS = 32 * 32
"""places of the maps (stride 16, crop 512) that the published weight of 1000 belongs to"""

AdForm = Literal["product", "printed"]
AdNorm = Literal["teacher", "map", "mean"]


def channel_attention(m_BChw: Tensor, squeeze_RC: Tensor, excite_CR: Tensor) -> Tensor:
    """AD_ch, eq. 5: sigmoid(W2 relu(W1 mean(m))), one weight in (0, 1) per channel: B x C x 1 x 1."""
    pooled_BC = m_BChw.mean((2, 3))
    return ((pooled_BC @ squeeze_RC.T).relu() @ excite_CR.T).sigmoid()[:, :, None, None]


def spatial_attention(m_BChw: Tensor) -> Tensor:
    """AD_sp, eq. 6: energy over channels divided by its Frobenius norm, per image: B x 1 x h x w."""
    energy_B1hw = wide(m_BChw).square().sum(1, keepdim=True)
    norm_B111 = torch.linalg.vector_norm(energy_B1hw, dim=(1, 2, 3), keepdim=True)
    return energy_B1hw / norm_B111.clamp_min(EPS)


def attend(
    m_BChw: Tensor,
    channel_BC11: Tensor | None = None,
    spatial: bool = True,
    form: AdForm = "product",
    detach: bool = True,
) -> Tensor:
    """AD, eq. 7: a map weighted by its channel attention s (None: without) and spatial attention a.

    `product` is the authors' code: a (1 + s) m, with a taken of (1 + s) m. `printed` is the equation:
    (1 + s a) m. Without either part both are m, the map of plain feature distillation. `detach`: a is a
    weight and no path for gradients, so moving energy about does not lower the loss.
    """
    m_BChw = wide(m_BChw)
    if form == "product":
        weighted_BChw = m_BChw if channel_BC11 is None else (1 + channel_BC11) * m_BChw
        return _energy(weighted_BChw, detach) * weighted_BChw if spatial else weighted_BChw
    if channel_BC11 is None and not spatial:
        return m_BChw
    s = 1.0 if channel_BC11 is None else channel_BC11
    return (1 + (s * _energy(m_BChw, detach) if spatial else s)) * m_BChw


def attentive_distance(
    new_BChw: Tensor, old_BChw: Tensor, norm: AdNorm = "teacher", unit_energy: bool = True
) -> Tensor:
    """One term of L_AD, eq. 8, between two maps of `attend`, normalised so that its weight keeps its meaning.

    `teacher`: divided by the mean square of the old map, image by image; 1 means "as far from the teacher as
    it is from zero", whatever the map size, batch and scale of the features.
    `map`: the mean square, as if the weights' mean square were always 1/1024. So it is for a (1 + s) m on
    32 x 32 maps (the energy a has Frobenius norm 1: `unit_energy`), where the published weight is 1000.
    `mean`: the mean square alone; with a unit energy it falls with the size of the map.
    """
    squares_B = (new_BChw - old_BChw).square().mean((1, 2, 3))
    if norm == "teacher":
        squares_B = squares_B / old_BChw.square().mean((1, 2, 3)).clamp_min(EPS)
    elif norm == "map":
        cells = new_BChw.shape[-2] * new_BChw.shape[-1]
        squares_B = squares_B * ((cells if unit_energy else 1) / PAPER_CELLS)
    return squares_B.mean()


def _energy(m_BChw: Tensor, detach: bool) -> Tensor:
    return spatial_attention(m_BChw.detach() if detach else m_BChw)
