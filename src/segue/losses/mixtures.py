"""How likely features are under mixtures of Gaussians, and the distance of two models in these terms
(CoGaMiD, NeurIPS 2025; re-derived).

Shapes: B batch, N features, F numbers of each, K classes, C Gaussians of each, h x w.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from segue.losses._strips import wide


def log_densities(features_NF: Tensor, means_KCF: Tensor, variances_KCF: Tensor, shares_KC: Tensor) -> Tensor:
    """log(share x density) of each feature under each Gaussian: N x K x C, -inf where there is no share."""
    precision_KCF = 1 / variances_KCF.clamp_min(torch.finfo(torch.float32).tiny)
    classes, components, width = means_KCF.shape
    # (x - m)^2 / v as three products: no N x K x C x F map
    square_NJ = features_NF.square() @ precision_KCF.reshape(-1, width).mT
    mixed_NJ = features_NF @ (means_KCF * precision_KCF).reshape(-1, width).mT
    fixed_KC = (means_KCF.square() * precision_KCF - precision_KCF.log() + math.log(2 * math.pi)).sum(2)
    distance_NKC = (square_NJ - 2 * mixed_NJ).unflatten(1, (classes, components)) + fixed_KC
    return shares_KC.log() - distance_NKC / 2


def likelihood_distance(
    h_BFhw: Tensor,
    old_h_BFhw: Tensor,
    weight_Bhw: Tensor,
    mixtures: tuple[Tensor, Tensor, Tensor],
) -> Tensor:
    """Divergence of the classes' normalised likelihoods by the student's features from those by the
    teacher's: a mean over places under a weight; nothing where nothing is weighed.

    Likelihoods are taken per number of a feature; else one class would have all of it.
    """

    def normalised(features_BFhw: Tensor) -> Tensor:
        features_NF = wide(features_BFhw).movedim(1, -1).flatten(0, 2)
        given = (each.to(features_NF.dtype) for each in mixtures)
        likelihood_NK = log_densities(features_NF, *given).logsumexp(2)
        return (likelihood_NK / features_NF.shape[1]).log_softmax(1)

    ours_NK, theirs_NK = normalised(h_BFhw), normalised(old_h_BFhw).detach()
    apart_N = (theirs_NK.exp() * (theirs_NK - ours_NK)).sum(1)
    return (weight_Bhw.flatten() * apart_N).sum() / weight_Bhw.sum().clamp_min(1)
