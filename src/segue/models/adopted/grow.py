"""The classifier of an adopted network, which grows: a layer per step, side by side.

Every part is a layer of the very type and settings that the network came with (kernel, stride, padding,
dilation, bias, number format), so its old rows stay bit for bit what they were. Some networks add up several
classifiers (LRASPP): these grow together, and h is their inputs, one under the other.

Shapes: B batch, F channels of h, h x w, K channels, M single places.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from segue.models.adopted.taps import classified
from segue.models.classifier import copy_background

NEVER = -1e4
"""logit of a background that no pixel belongs to; half precision still holds it"""


class GrowingLayer(nn.Module):
    """Stands where the network's own classifier stood."""

    def __init__(self, like: nn.Conv2d, front: float | None = None) -> None:
        """`front` is the constant logit of a channel in front of all others, which the network lacks."""
        super().__init__()
        self.in_channels, self.front = like.in_channels, front
        self.parts = nn.ModuleList()
        # on no device and in a tuple: the pattern of new parts, no part of the weights
        self._like = (copy.deepcopy(like).to("meta"),)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Channels of each step, background in the first."""
        extra = int(self.front is not None)
        return tuple(part.out_channels + extra * (index == 0) for index, part in enumerate(self.parts))

    def add(self, channels: int) -> nn.Conv2d:
        """Add a layer with fresh weights."""
        part = copy.deepcopy(self._like[0])
        device = self.parts[0].weight.device if self.parts else torch.device("cpu")
        part.out_channels = channels
        weight = torch.empty(channels, *part.weight.shape[1:], dtype=part.weight.dtype, device=device)
        part.weight = nn.Parameter(weight)
        if part.bias is not None:
            part.bias = nn.Parameter(torch.empty(channels, dtype=weight.dtype, device=device))
        part.reset_parameters()
        self.parts.append(part)
        return part

    @property
    def dtype(self) -> torch.dtype:
        return self._like[0].weight.dtype

    def logits(self, x_BFhw: Tensor) -> Tensor:
        if not self.parts:
            return x_BFhw[:, :0]  # not grown yet
        logits_BKhw = torch.cat([part(x_BFhw) for part in self.parts], dim=1)
        return logits_BKhw if self.front is None else F.pad(logits_BKhw, (0, 0, 0, 0, 1, 0), value=self.front)

    def forward(self, x_BFhw: Tensor) -> Tensor:
        return classified(self, x_BFhw, self.logits(x_BFhw))

    def at_places(self, x_MF: Tensor) -> Tensor:
        """Logits (M x K) of places whose surroundings are the same: the kernel counts by its sum."""
        rows = []
        for part in self.parts:
            bias = 0.0 if part.bias is None else part.bias
            rows.append(x_MF @ part.weight.sum((2, 3)).t() + bias)
        logits_MK = torch.cat(rows, dim=1)
        return logits_MK if self.front is None else F.pad(logits_MK, (1, 0), value=self.front)


class AdoptedClassifier:
    """h -> logits by the network's own layers. No module: the layers are in their places in the network."""

    def __init__(self, layers: Sequence[GrowingLayer]) -> None:
        self.layers = list(layers)

    @property
    def in_channels(self) -> int:
        return sum(layer.in_channels for layer in self.layers)

    @property
    def parts(self) -> list[nn.Module]:
        """The layer of each step, or its layers if several are added up."""
        if len(self.layers) == 1:
            return list(self.layers[0].parts)
        return [nn.ModuleList(layers) for layers in zip(*(layer.parts for layer in self.layers), strict=True)]

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.layers[0].sizes

    def parameters(self) -> list[nn.Parameter]:
        return [parameter for layer in self.layers for parameter in layer.parameters()]

    def modules(self) -> list[nn.Module]:
        return [module for layer in self.layers for module in layer.modules()]

    def to(self, device: torch.device) -> None:
        for layer in self.layers:
            layer.to(device)

    def grow(self, channels: int, balanced: bool) -> None:
        """Add channels. `balanced` starts them as equal shares of the background's probability (MiB).

        A layer without bias cannot be shifted: its new channels start as plain copies of background. A
        background that no pixel belongs to has nothing to share.
        """
        for index, layer in enumerate(self.layers):
            layer.add(channels - int(layer.front is not None and not layer.parts))
            if balanced and layer.front is None and len(layer.parts) > 1:
                shift = math.log(channels + 1) if index == 0 else 0.0
                copy_background(layer.parts[0], layer.parts[-1], shift)

    def _inputs(self, h: Tensor) -> tuple[Tensor, ...]:
        return h.split([layer.in_channels for layer in self.layers], dim=1)

    def __call__(self, h_BFhw: Tensor) -> Tensor:
        pairs = zip(self.layers, self._inputs(h_BFhw), strict=True)
        return _total([layer.logits(x_BFhw) for layer, x_BFhw in pairs])

    def at_places(self, h_MF: Tensor) -> Tensor:
        """Logits (M x K) of single places, as if their surroundings were the same."""
        pairs = zip(self.layers, self._inputs(h_MF), strict=True)
        return _total([layer.at_places(x_MF) for layer, x_MF in pairs])


def _total(values: list[Tensor]) -> Tensor:
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total
