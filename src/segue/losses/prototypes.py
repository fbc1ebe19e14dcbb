"""Constraints on features by class (SDR, Michieli and Zanuttigh, CVPR 2021).

Shapes: B batch, C channels, h x w, K classes with background, labels at the features' resolution. Labels of
255 and, where a term says so, background have no part. Terms without any pixel are zero.
"""

from __future__ import annotations

import torch
from torch import Tensor

IGNORE = 255
LEAST_SUM = 1.0
"""of a place's normalised features: a place with hardly any activity would dominate its image"""
LEAST_DISTANCE = 1e-3


def class_sums(z_BChw: Tensor, labels_Bhw: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """Sum of features (K x C) and number of places (K) of each class."""
    features_NC, labels_N = _rows(z_BChw, labels_Bhw)
    sums_KC = features_NC.new_zeros(num_classes, features_NC.shape[1]).index_add(0, labels_N, features_NC)
    return sums_KC, torch.bincount(labels_N, minlength=num_classes).to(sums_KC.dtype)


def attraction(z_BChw: Tensor, labels_Bhw: Tensor, prototypes_KC: Tensor) -> Tensor:
    """Mean squared distance of features to the prototype of their class, averaged over classes."""
    features_NC, labels_N = _rows(z_BChw, labels_Bhw)
    squares_N = (features_NC - prototypes_KC[labels_N]).square().mean(1)
    counts_K = torch.bincount(labels_N, minlength=len(prototypes_KC)).to(squares_N.dtype)
    weight_K = (counts_K > 0).to(squares_N.dtype) / counts_K.clamp_min(1)
    weight_K[0] = 0.0  # background is no cluster
    return (squares_N * weight_K[labels_N]).sum() / (weight_K > 0).sum().clamp_min(1)


def repulsion(z_BChw: Tensor, labels_Bhw: Tensor, num_classes: int) -> Tensor:
    """Mean of the inverse distances between the means of the classes that are there, background left out."""
    sums_KC, counts_K = class_sums(z_BChw, labels_Bhw, num_classes)
    means_MC = (sums_KC / counts_K.clamp_min(1)[:, None])[1:][counts_K[1:] > 0]
    distances_P = torch.pdist(means_MC) if len(means_MC) > 1 else means_MC.new_zeros(0)
    return (1 / distances_P.clamp_min(LEAST_DISTANCE)).sum() / max(len(distances_P), 1)


def sparsity(z_BChw: Tensor, labels_Bhw: Tensor, num_classes: int) -> Tensor:
    """sum_c exp(f) / sum_c f of features f divided by the largest of their class, averaged over places.

    Features count from zero up: a leaky activation's negative values are none.
    """
    features_NC, labels_N = _rows(z_BChw.relu(), labels_Bhw)
    if not len(features_NC):
        return features_NC.sum()
    largest_N = features_NC.detach().amax(1)
    largest_K = features_NC.new_zeros(num_classes).scatter_reduce(0, labels_N, largest_N, "amax")
    scaled_NC = features_NC / largest_K[labels_N].clamp_min(1e-6)[:, None]
    return (scaled_NC.exp().sum(1) / scaled_NC.sum(1).clamp_min(LEAST_SUM)).mean()


def _rows(z_BChw: Tensor, labels_Bhw: Tensor) -> tuple[Tensor, Tensor]:
    """Features and labels of all places that are not ignored."""
    labels_N = labels_Bhw.flatten().long()
    chosen_N = labels_N != IGNORE
    return z_BChw.movedim(1, -1).flatten(0, 2)[chosen_N], labels_N[chosen_N]
