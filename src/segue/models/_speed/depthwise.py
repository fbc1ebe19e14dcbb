"""Depthwise convolutions that train quickly on CPUs.

There the library's gradients of a dilated or wide depthwise convolution take ten to eighty times as long as
its forward pass. The same numbers come from convolutions that are quick: the gradient of the input is the
convolution of the output's with the turned kernel; that of the weight is taken on maps of dilation 1, which
space-to-batch gives. Weights, names and outputs stay those of `nn.Conv2d`.

Shapes: B batch, C channels, h x w map, k x k kernel.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx

WIDE = 5
"""kernels from this size on have a slow gradient of the weight even without dilation"""
MOST_PADDING = 7
"""largest padding at which the library's forward pass is quick"""


class QuickDepthwise(nn.Conv2d):
    """An `nn.Conv2d` with other gradients: depthwise, of stride 1, its output as large as its input."""

    def forward(self, x_BChw: Tensor) -> Tensor:
        quick = x_BChw.device.type == "cpu" and x_BChw.dtype == self.weight.dtype == torch.float32
        if not quick or torch.is_autocast_enabled("cpu"):
            return super().forward(x_BChw)
        return _Depthwise.apply(x_BChw, self.weight, self.bias, self.dilation[0])


def quicken(module: nn.Module) -> None:
    """Let every convolution inside that gains from it take the quick way."""
    for part in module.modules():
        if type(part) is nn.Conv2d and _gains(part):
            part.__class__ = QuickDepthwise  # a new module would draw weights: other random numbers after it


def _gains(conv: nn.Conv2d) -> bool:
    size, dilation = conv.kernel_size[0], conv.dilation[0]
    padding = dilation * (size // 2)
    plain = (
        (size, size, dilation, padding, padding, 1, 1)
        == (*conv.kernel_size, conv.dilation[1], *_pair(conv.padding), *conv.stride)
        and conv.padding_mode == "zeros"
        and size % 2 == 1
    )
    depthwise = conv.groups == conv.in_channels == conv.out_channels > 1
    return plain and depthwise and size > 1 and (dilation > 1 or size >= WIDE)


def _pair(padding: str | tuple[int, int]) -> tuple[int | str, ...]:
    return (padding, padding) if isinstance(padding, str) else padding


class _Depthwise(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: FunctionCtx, x_BChw: Tensor, weight_C1kk: Tensor, bias_C: Tensor | None, dilation: int
    ) -> Tensor:
        ctx.save_for_backward(x_BChw, weight_C1kk)
        ctx.dilation = dilation
        return _convolve(x_BChw, weight_C1kk, bias_C, dilation)

    @staticmethod
    def backward(ctx: FunctionCtx, grad_BChw: Tensor) -> tuple[Tensor | None, ...]:
        (x_BChw, weight_C1kk), (wants_x, wants_weight, wants_bias, _) = (
            ctx.saved_tensors,
            ctx.needs_input_grad,
        )
        turned = weight_C1kk.flip(2, 3) if wants_x else None
        return (
            _convolve(grad_BChw, turned, None, ctx.dilation) if wants_x else None,
            _weight_gradient(x_BChw, grad_BChw, weight_C1kk, ctx.dilation) if wants_weight else None,
            grad_BChw.sum((0, 2, 3)) if wants_bias else None,
            None,
        )


def _convolve(x_BChw: Tensor, weight_C1kk: Tensor, bias_C: Tensor | None, dilation: int) -> Tensor:
    channels, pad = len(weight_C1kk), weight_C1kk.shape[-1] // 2
    if pad * dilation <= MOST_PADDING:
        return F.conv2d(x_BChw, weight_C1kk, bias_C, 1, pad * dilation, dilation, channels)
    y = F.conv2d(to_batch(x_BChw, dilation), weight_C1kk, bias_C, 1, pad, 1, channels)
    return from_batch(y, dilation, x_BChw.shape).clone()  # a view could not be changed in place


def _weight_gradient(x_BChw: Tensor, grad_BChw: Tensor, weight_C1kk: Tensor, dilation: int) -> Tensor:
    x, grad = to_batch(x_BChw, dilation), to_batch(grad_BChw, dilation)
    channels, size = len(weight_C1kk), weight_C1kk.shape[-1]
    pad = size // 2
    if size < WIDE:
        wanted = (False, True, False)
        return torch.ops.aten.convolution_backward(
            grad, x, weight_C1kk, None, (1, 1), (pad, pad), (1, 1), False, (0, 0), channels, wanted
        )[1]
    # each map's correlation with its gradient: a convolution whose kernels are the gradients
    count, _, height, width = x.shape
    maps, kernels = (y.reshape(1, count * channels, height, width) for y in (x, grad))
    found = F.conv2d(maps, kernels.transpose(0, 1), None, 1, pad, 1, count * channels)
    return found.view(count, channels, 1, size, size).sum(0)


def to_batch(x_BChw: Tensor, dilation: int) -> Tensor:
    """Every `dilation`-th row and column as a map of its own: B d d x C x h/d x w/d, filled with zeros."""
    if dilation == 1:
        return x_BChw
    batch, _, height, width = x_BChw.shape
    x = F.pad(x_BChw, (0, -width % dilation, 0, -height % dilation)).permute(0, 2, 3, 1)
    x = x.unflatten(2, (-1, dilation)).unflatten(1, (-1, dilation)).permute(0, 2, 4, 1, 3, 5)
    return x.reshape(batch * dilation**2, *x.shape[3:]).permute(0, 3, 1, 2)


def from_batch(x: Tensor, dilation: int, shape: torch.Size) -> Tensor:
    """The inverse of `to_batch`, for maps that were of this shape."""
    batch, _, height, width = shape
    x = x.permute(0, 2, 3, 1).unflatten(0, (batch, dilation, dilation)).permute(0, 3, 1, 4, 2, 5)
    return x.flatten(3, 4).flatten(1, 2)[:, :height, :width].permute(0, 3, 1, 2)
