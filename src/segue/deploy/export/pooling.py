"""Adaptive pooling that holds for every size: exporters write the windows of the size that they were shown.

torch's own layer becomes an average over fixed windows in an ONNX file, which is wrong at other sizes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class AnySizePool(nn.AdaptiveAvgPool2d):
    """The same means as two products with matrices, which follow from the size of the map."""

    def forward(self, map_BChw: Tensor) -> Tensor:
        size = self.output_size
        rows, columns = size if isinstance(size, tuple) else (size, size)
        if rows is not None:
            map_BChw = _means(rows, map_BChw.shape[-2], map_BChw) @ map_BChw
        if columns is not None:
            map_BChw = map_BChw @ _means(columns, map_BChw.shape[-1], map_BChw).t()
        return map_BChw


def _means(bins: int, length: int, like: Tensor) -> Tensor:
    """Weights of the mean over each bin, bins x length; bins overlap where they do not divide the length."""
    place_1L = torch.arange(length, device=like.device)[None]
    bin_N1 = torch.arange(bins, device=like.device)[:, None]
    first_N1, end_N1 = (bin_N1 * length) // bins, ((bin_N1 + 1) * length + bins - 1) // bins
    inside_NL = ((place_1L >= first_N1) & (place_1L < end_N1)).to(like.dtype)
    return inside_NL / inside_NL.sum(1, keepdim=True)


def pool_at_any_size(network: nn.Module) -> None:
    """Let the layers that an exporter would fix work in the other way; one bin is a plain mean already."""
    for layer in network.modules():
        if type(layer) is nn.AdaptiveAvgPool2d and layer.output_size not in (1, (1, 1)):
            layer.__class__ = AnySizePool  # in place: a network may hold its layers in lists of its own
