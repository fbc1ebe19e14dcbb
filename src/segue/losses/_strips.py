"""Full resolution in strips: a band of output rows at a time, so that upsampled logits are never stored.

Shapes: B batch, K channels, h x w at the model's stride, H x W at the labels' resolution. A strip holds N
images (often one) and R rows: N x R x K x W, channels before columns, so that all work runs along rows.

Bilinear upsampling is linear: matrices for the columns and for the rows. A strip is made of the few rows
of the map that it needs, looked at while it is in the cache, and the transposed matrices bring a gradient
back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from segue.losses.resizing import ALIGNED, NEAREST, present_resize

STRIP_ELEMENTS = 2**20
"""logits in a strip on the CPU: four megabytes, so that caches help, and enough to make calls cheap"""
LEAST_ROWS = 12
"""smallest number of rows in a strip: neighbouring strips compute some rows of the map twice"""
BLOCK = 2048
"""rows or columns that are resampled by one matrix: one for all would be larger than a long thin picture"""
LARGE_STRIP_ELEMENTS = 2**25
"""logits in a strip on an accelerator: enough to fill it"""


def wide(values: Tensor) -> Tensor:
    """At least single precision: squares and exponentials overflow below."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def finest(device: torch.device) -> torch.dtype:
    """The widest type of a device, for sums over many places: double precision, but MPS has none."""
    return torch.float32 if device.type == "mps" else torch.float64


def upsample(logits_BKhw: Tensor, size: Sequence[int], resize: str | None = None) -> Tensor:
    """Logits at another size, in float32 at least; all pixels at once.

    `resize` is bilinear, aligned or nearest; None: what is said around it (resizing.py), else bilinear.
    """
    logits, resize = wide(logits_BKhw), resize or present_resize()
    if logits.shape[-2:] == tuple(size):
        return logits
    if resize == NEAREST:
        return F.interpolate(logits, size=tuple(size), mode="nearest")
    return F.interpolate(logits, size=tuple(size), mode="bilinear", align_corners=resize == ALIGNED)


def labels_of_map(labels_BHW: Tensor, map_BFhw: Tensor) -> Tensor:
    """The label in the middle of each place of a map."""
    return F.interpolate(labels_BHW[:, None].float(), map_BFhw.shape[-2:], mode="nearest-exact")[:, 0].long()


@lru_cache(maxsize=128)
def resampling_band(
    source: int, target: int, places: tuple[int, int], dtype: torch.dtype, device: torch.device, resize: str
) -> tuple[slice, Tensor]:
    """The sources of some places of a resampled side, and their weights (places x sources).

    The arithmetic is torch's own, in its order and precision, so that the weights are the same numbers.
    """
    scale, target_T = torch.tensor(source, dtype=dtype) / target, torch.arange(*places, dtype=dtype)
    if resize == ALIGNED:
        scale = torch.tensor(max(source - 1, 0), dtype=dtype) / max(target - 1, 1)
        position_T = scale * target_T
    elif resize == NEAREST:
        position_T = (scale * target_T).floor()
    else:
        position_T = (scale * (target_T + 0.5) - 0.5).clamp_min(0)
    lower_T = position_T.long().clamp_max(source - 1)
    share_T = (position_T - lower_T).clamp(0, 1)
    near = slice(int(lower_T[0]), min(int(lower_T[-1]) + 2, source))
    lower_T1 = lower_T[:, None] - near.start
    matrix = torch.zeros(len(target_T), near.stop - near.start, dtype=dtype)
    matrix.scatter_add_(1, lower_T1, 1 - share_T[:, None])
    matrix.scatter_add_(1, (lower_T1 + 1).clamp_max(matrix.shape[1] - 1), share_T[:, None])
    return near, matrix.to(device)


class Resampling:
    """Resampling of h x w maps to H x W, strip by strip, and its transpose; as `resized_as` says."""

    def __init__(self, source: Sequence[int], target: Sequence[int], like: Tensor) -> None:
        (self._height, self._width), self._kind = zip(source, target, strict=True), (like.dtype, like.device)
        self._same_rows, self._same_columns = (a == b for a, b in (self._height, self._width))
        self._resize = present_resize()

    def widen(self, map_NKhw: Tensor) -> Tensor:
        """All columns, the rows still few: N x h x K x W."""
        map_NhKw = map_NKhw.transpose(1, 2)
        if self._same_columns:
            return map_NhKw.contiguous()
        blocks = [map_NhKw[..., near] @ weights_Cn.t() for near, _, weights_Cn in self._blocks()]
        return blocks[0] if len(blocks) == 1 else torch.cat(blocks, dim=-1)

    def narrow(self, wide_NhKW: Tensor) -> Tensor:
        """The transpose of `widen`: N x K x h x w."""
        if self._same_columns:
            return wide_NhKW.transpose(1, 2)
        narrow_NhKw = wide_NhKW.new_zeros(*wide_NhKW.shape[:-1], self._width[0])
        for near, columns, weights_Cn in self._blocks():
            narrow_NhKw[..., near] += wide_NhKW[..., columns] @ weights_Cn
        return narrow_NhKw.transpose(1, 2)

    def _blocks(self) -> Iterator[tuple[slice, slice, Tensor]]:
        """Columns of the map, those of the result that are made of them, and the weights."""
        for start in range(0, self._width[1], BLOCK):
            columns = slice(start, min(start + BLOCK, self._width[1]))
            near, weights_Cn = resampling_band(
                *self._width, (columns.start, columns.stop), *self._kind, self._resize
            )
            yield near, columns, weights_Cn

    def strip(self, wide_NhKW: Tensor, rows: slice, room: Tensor | None = None) -> Tensor:
        """Some rows of the result, N x R x K x W; `room` is memory to write them to."""
        shape = (len(wide_NhKW), rows.stop - rows.start, *wide_NhKW.shape[2:])
        strip_NRKW = wide_NhKW.new_empty(shape) if room is None else room[: math.prod(shape)].view(shape)
        if self._same_rows:
            return strip_NRKW.copy_(wide_NhKW[:, rows])
        near, weights_Rn = self._near(rows)
        # one product for all channels and columns
        weights_NRn = weights_Rn.expand(len(wide_NhKW), -1, -1)
        torch.bmm(weights_NRn, wide_NhKW[:, near].flatten(2), out=strip_NRKW.flatten(2))
        return strip_NRKW

    def add_back(self, into_NhKW: Tensor, strip_NRKW: Tensor, rows: slice) -> None:
        """The transpose of `strip`, added to what is there."""
        if self._same_rows:
            into_NhKW[:, rows] += strip_NRKW
            return
        near, weights_Rn = self._near(rows)
        weights_NnR = weights_Rn.t().expand(len(strip_NRKW), -1, -1)
        into_NhKW[:, near].flatten(2).baddbmm_(weights_NnR, strip_NRKW.flatten(2))

    def _near(self, rows: slice) -> tuple[slice, Tensor]:
        """The rows of the map that some rows of the result are made of, and their weights."""
        return resampling_band(*self._height, (rows.start, rows.stop), *self._kind, self._resize)


class Cutting:
    """How B x K x H x W is cut: into groups of images, as many as fit into a strip, and bands of rows."""

    def __init__(self, batch: int, channels: int, size: Sequence[int], device: torch.device) -> None:
        elements = STRIP_ELEMENTS if device.type == "cpu" else LARGE_STRIP_ELEMENTS
        height, width = size
        self.batch, self.height = batch, height
        self._images = max(1, min(elements // (channels * height * width), batch))
        self._rows = min(max(LEAST_ROWS, elements // (channels * width)), height, BLOCK)
        self.elements = self._images * self._rows * channels * width
        """in the largest strip"""

    def groups(self) -> Iterator[slice]:
        starts = range(0, self.batch, self._images)
        return (slice(i, min(i + self._images, self.batch)) for i in starts)

    def bands(self) -> Iterator[slice]:
        starts = range(0, self.height, self._rows)
        return (slice(i, min(i + self._rows, self.height)) for i in starts)


@torch.no_grad()
def pixel_answers(
    logits_BKhw: Tensor, size: Sequence[int], answer: Callable[[Tensor], tuple[Tensor, ...]]
) -> tuple[Tensor, ...]:
    """What a function of each pixel's logits says at full resolution; each part is B x H x W.

    `answer` takes a strip, N x R x K x W, and gives tensors of N x R x W.
    """
    with torch.autocast(logits_BKhw.device.type, enabled=False):
        map_BKhw = wide(logits_BKhw)
        cutting = Cutting(len(map_BKhw), map_BKhw.shape[1], size, map_BKhw.device)
        resampling = Resampling(map_BKhw.shape[-2:], size, map_BKhw)
        images = []
        for group in cutting.groups():
            wide_NhKW = resampling.widen(map_BKhw[group])
            found = [answer(resampling.strip(wide_NhKW, rows)) for rows in cutting.bands()]
            images.append([torch.cat(part, dim=1) for part in zip(*found, strict=True)])
        return tuple(torch.cat(part) for part in zip(*images, strict=True))
