"""What is exported: image in, logits and mask out, with normalisation and upsampling inside.

Shapes: B batch, H x W pixels, h x w maps at the network's stride, K channels (background and the classes).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from segue.deploy.export.outputs import LOGITS, MAP, MASK, PROBABILITIES, Outputs, output_names
from segue.deploy.export.pooling import pool_at_any_size
from segue.models.network import at_size
from segue.models.plain import plain_copy

BILINEAR = "bilinear"
"""the usual way to bring logits to the size of the image"""
NEVER = -1e4
"""logit of a class that no pixel has; numbers of 16 bit hold it too"""
InputKind = Literal["uint8", "float32"]
EXAMPLE = (2, 3, 193, 257)
"""shape of the image that the graph is traced with: a batch and sides that no stride divides"""
SIDE = 256
"""side of the image that the stride is found with"""


class ImageToLogits(nn.Module):
    """`image` (B x 3 x H x W, 0..255) -> the outputs that were asked for, in the order of `names`."""

    def __init__(self, network: nn.Module, channels: int, outputs: Outputs = "all") -> None:
        """`network` gives logits, or an object that has them as `logits`; it is copied."""
        super().__init__()
        self.network = plain_copy(network)
        pool_at_any_size(self.network)
        self.resize = resize_of(network)
        # the map is for those who bring it to another size themselves, as Segue does: bilinear
        names = output_names(outputs)
        self.names = names if self.resize == BILINEAR else tuple(name for name in names if name != MAP)
        self.mask_type = torch.uint8 if channels <= 256 else torch.int32

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        map_BKhw = logits_of(self.network, image)
        logits_BKHW = at_size(map_BKhw, image.shape[-2:], self.resize)
        found = {LOGITS: logits_BKHW, MAP: map_BKhw}
        if MASK in self.names:
            found[MASK] = logits_BKHW.argmax(1).to(self.mask_type)
        if PROBABILITIES in self.names:
            found[PROBABILITIES] = logits_BKHW.softmax(1)
        return tuple(found[name] for name in self.names)


class ClosedBackground(nn.Module):
    """A network by which no pixel is background: for data in which every pixel has a class."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network, self.resize = network, resize_of(network)

    def forward(self, image: Tensor) -> Tensor:
        map_BKhw = logits_of(self.network, image)
        never_B1hw = torch.full_like(map_BKhw[:, :1], NEVER)
        return torch.cat([never_B1hw, map_BKhw[:, 1:]], dim=1)


def logits_of(network: nn.Module, image: Tensor) -> Tensor:
    """The logits of a network of any kind, at its own stride."""
    found = network(image)
    return found if isinstance(found, Tensor) else found.logits


def resize_of(network: nn.Module) -> str:
    """How a network means its logits to be brought to the size of the image; most do not say."""
    return getattr(network, "resize", BILINEAR)


def stride_of(network: nn.Module) -> int:
    """Pixels of the image by pixels of the map, along one side."""
    with torch.inference_mode():
        return SIDE // logits_of(network, torch.zeros(1, 3, SIDE, SIDE, dtype=torch.uint8)).shape[-1]


def example(kind: InputKind, side: int | None = None) -> Tensor:
    """An image to trace with: of a fixed side, or as good as any."""
    generator, shape = torch.Generator().manual_seed(0), EXAMPLE if side is None else (2, 3, side, side)
    return torch.randint(0, 256, shape, generator=generator).to(getattr(torch, kind))
