"""Constraints on features by class (SDR, Michieli and Zanuttigh, CVPR 2021).

Shapes: B batch, C channels, h x w, K classes with background, labels at the features' resolution. Labels of
255 and, where a term says so, background have no part. Terms without any pixel are zero.
"""

from __future__ import annotations

import torch
from torch import Tensor

from segue.losses.pixel import IGNORE

LEAST_SUM = 1.0
"""smallest sum of a place's normalised features: a place with hardly any activity would dominate its image"""
LEAST_DISTANCE = 1e-3


def class_sums(z_BChw: Tensor, labels_Bhw: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """Sum of features (K x C) and number of places (K) of each class."""
    features_NC, rows_N = _rows(z_BChw, labels_Bhw, num_classes)
    sums_RC = features_NC.new_zeros(num_classes + 1, features_NC.shape[1]).index_add(0, rows_N, features_NC)
    return sums_RC[:-1], _counts(rows_N, num_classes)


def attraction(z_BChw: Tensor, labels_Bhw: Tensor, prototypes_KC: Tensor, known_K: Tensor) -> Tensor:
    """Mean squared distance of features to the prototype of their class, averaged over classes.

    Only classes that have a prototype (`known_K`) take part, and background is no cluster.
    """
    num_classes = len(prototypes_KC)
    features_NC, rows_N = _rows(z_BChw, labels_Bhw, num_classes)
    counts_K = _counts(rows_N, num_classes)
    there_K = known_K & (counts_K > 0) & (torch.arange(num_classes, device=counts_K.device) > 0)
    weight_R = _with_ignored(there_K / counts_K.clamp_min(1))
    squares_N = (features_NC - _with_ignored(prototypes_KC)[rows_N]).square().mean(1)
    return (squares_N * weight_R[rows_N]).sum() / there_K.sum().clamp_min(1)


def repulsion(z_BChw: Tensor, labels_Bhw: Tensor, num_classes: int) -> Tensor:
    """Mean of the inverse distances between the means of the classes that are there, background left out."""
    sums_KC, counts_K = class_sums(z_BChw, labels_Bhw, num_classes)
    means_MC, there_M = (sums_KC / counts_K.clamp_min(1)[:, None])[1:], counts_K[1:] > 0
    pairs_MM = (there_M[:, None] & there_M).triu(1)
    squares_MM = (means_MC[:, None] - means_MC).square().sum(2).clamp_min(LEAST_DISTANCE**2)
    return (squares_MM.rsqrt() * pairs_MM).sum() / pairs_MM.sum().clamp_min(1)


def sparsity(z_BChw: Tensor, labels_Bhw: Tensor, num_classes: int) -> Tensor:
    """sum_c exp(f) / sum_c f of features f divided by the largest of their class, averaged over places.

    Features count from zero up: a leaky activation's negative values are none. The largest is a scale and no
    path for gradients.
    """
    features_NC, rows_N = _rows(z_BChw.relu(), labels_Bhw, num_classes)
    largest_N = features_NC.detach().amax(1)
    largest_R = features_NC.new_zeros(num_classes + 1).scatter_reduce(0, rows_N, largest_N, "amax")
    scaled_NC = features_NC / largest_R[rows_N].clamp_min(1e-6)[:, None]
    terms_N = scaled_NC.exp().sum(1) / scaled_NC.sum(1).clamp_min(LEAST_SUM)
    labelled_N = rows_N < num_classes
    return (terms_N * labelled_N).sum() / labelled_N.sum().clamp_min(1)


def _rows(z_BChw: Tensor, labels_Bhw: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """Features and classes of all places; those that are ignored are of a class after the last.

    Leaving them out would make a device wait for the count.
    """
    labels_Bhw = labels_Bhw.masked_fill(labels_Bhw == IGNORE, num_classes)
    return z_BChw.movedim(1, -1).flatten(0, 2), labels_Bhw.flatten().long()


def _counts(rows_N: Tensor, num_classes: int) -> Tensor:
    ones_N = torch.ones(len(rows_N), device=rows_N.device)
    return torch.zeros(num_classes + 1, device=rows_N.device).index_add(0, rows_N, ones_N)[:-1]


def _with_ignored(values_K: Tensor) -> Tensor:
    """A row of zeros for places that are ignored."""
    return torch.cat([values_K, values_K.new_zeros(1, *values_K.shape[1:])])
