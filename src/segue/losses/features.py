"""Attentive feature distillation (CAF, Yang et al. 2022, section III-B).

Shapes: B batch, C channels, h x w. A map m is weighted by what it attends to, channel by channel (squeeze and
excitation) and place by place (its energy), before new and old are compared.
"""

from __future__ import annotations

import torch
from torch import Tensor

EPS = 1e-12


def channel_attention(m_BChw: Tensor, squeeze_RC: Tensor, excite_CR: Tensor) -> Tensor:
    """AD_ch, eq. 5: sigmoid(W2 relu(W1 mean(m))), one weight in (0, 1) per channel: B x C x 1 x 1."""
    pooled_BC = m_BChw.mean((2, 3))
    return ((pooled_BC @ squeeze_RC.T).relu() @ excite_CR.T).sigmoid()[:, :, None, None]


def spatial_attention(m_BChw: Tensor) -> Tensor:
    """AD_sp, eq. 6: energy over channels divided by its Frobenius norm, per image: B x 1 x h x w."""
    energy_B1hw = _wide(m_BChw).square().sum(1, keepdim=True)
    norm_B111 = torch.linalg.vector_norm(energy_B1hw, dim=(1, 2, 3), keepdim=True)
    return energy_B1hw / norm_B111.clamp_min(EPS)


def attend(m_BChw: Tensor, channel_BC11: Tensor) -> Tensor:
    """AD, eq. 7, as the code of its authors has it: a (1 + s) m, with the energy a of (1 + s) m.

    The spatial factor is a weight, not a path for gradients: moving energy about must not lower the loss.
    """
    weighted_BChw = (1 + channel_BC11) * m_BChw
    return spatial_attention(weighted_BChw.detach()) * weighted_BChw


def attentive_distillation(
    new_BChw: Tensor, old_BChw: Tensor, squeeze_RC: Tensor, excite_CR: Tensor
) -> Tensor:
    """One term of L_AD, eq. 8, divided by the teacher's own mean square.

    The mean of a^2 is 1 / (h w), so a plain mean square depends on the size of the map; the relative one does
    not, nor on the batch or the scale of the features: 1 means "as far from the teacher as it is from zero".
    """
    new_BChw, old_BChw = _wide(new_BChw), _wide(old_BChw)
    target_BChw = attend(old_BChw, channel_attention(old_BChw, squeeze_RC, excite_CR))
    source_BChw = attend(new_BChw, channel_attention(new_BChw, squeeze_RC, excite_CR))
    energy_B = target_BChw.square().mean((1, 2, 3)).clamp_min(EPS)
    return ((source_BChw - target_BChw).square().mean((1, 2, 3)) / energy_B).mean()


def _wide(m_BChw: Tensor) -> Tensor:
    """Squares overflow in half precision."""
    return m_BChw.float() if m_BChw.dtype in (torch.float16, torch.bfloat16) else m_BChw
