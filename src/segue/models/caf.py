"""The continual attentive fusion layer (CAF, Yang et al. 2022, section III-A), between encoder and head.

Shapes: B batch, C channels of z, D inner width, h x w map, n = h w places, m places after pooling. The
features z of the new and of the old model are projected (v), fused, and raised by a structured attention:
    z_bar = (1 + A_ch x A_sp) v(old, new)                                                         (eq. 1-4)
Each equation is a function here; `LayerConfig` holds the choice wherever paper and released code differ
(docs/caf.md). With the default choices the layer changes nothing when it is put into a trained model.
"""

from __future__ import annotations

import copy
from dataclasses import asdict, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from segue.core.config import validate
from segue.core.errors import UserError
from segue.core.layer_config import LayerConfig

REDUCTION = 16
"""reduction of squeeze and excitation"""


# The equations


def non_local(query_BDn: Tensor, key_BDm: Tensor, value_BEm: Tensor, scaled: bool = True) -> Tensor:
    """The non-local sum behind v: value x softmax(key^T query / sqrt(D)), B x E x n; no n x m matrix is kept.

    Unscaled products (the released code) leave the range of half precision, so they are taken in float32.
    """
    heads = value_BEm.shape[1] // query_BDn.shape[1]  # a wider value is read in parts of width D
    query_BGnD, key_BGmD = (
        x.transpose(1, 2).contiguous().unsqueeze(1).expand(-1, heads, -1, -1) for x in (query_BDn, key_BDm)
    )
    # the kernels that keep no matrix want the last dimension dense
    value_BGmD = value_BEm.unflatten(1, (heads, -1)).transpose(2, 3).contiguous()
    if scaled:
        mixed = F.scaled_dot_product_attention(query_BGnD, key_BGmD, value_BGmD)
    else:
        with torch.autocast(query_BDn.device.type, enabled=False):
            wide = (_wide(x) for x in (query_BGnD, key_BGmD, value_BGmD))
            mixed = F.scaled_dot_product_attention(*wide, scale=1.0)
    return mixed.transpose(2, 3).flatten(1, 2)


def fuse_features(old_BChw: Tensor, new_BChw: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """v(old, new): a 1 x 1 convolution of both, concatenated, back to C channels."""
    return F.conv2d(torch.cat([old_BChw, new_BChw], dim=1), weight, bias)


def spatial_map(v_BChw: Tensor, weight_1C11: Tensor, bias_1: Tensor | None = None) -> Tensor:
    """A_sp, eq. 1. The channel mean of a C -> C convolution is a C -> 1 convolution: B x 1 x h x w."""
    return F.conv2d(v_BChw, weight_1C11, bias_1)


def channel_vector(v_BChw: Tensor, weight_CC: Tensor, bias_C: Tensor) -> Tensor:
    """A_ch, eq. 2. The mean over places of a 1 x 1 convolution is a linear map of the mean: B x C x 1 x 1."""
    return F.linear(v_BChw.mean((2, 3)), weight_CC, bias_C)[:, :, None, None]


def excited_vector(v_BChw: Tensor, squeeze_RC: Tensor, excite_CR: Tensor) -> Tensor:
    """A_ch as the released code has it, eq. 2 through a bottleneck: in (0, 1), B x C x 1 x 1."""
    return F.linear(F.linear(v_BChw.mean((2, 3)), squeeze_RC).relu(), excite_CR).sigmoid()[:, :, None, None]


def contrast(map_B1hw: Tensor) -> Tensor:
    """A map in (-1, 1) that says which places stand out: tanh of the difference to the image's mean.

    Without the mean the bound is soon reached everywhere, and the "attention" is one constant.
    """
    return (map_B1hw - map_B1hw.mean((2, 3), keepdim=True)).tanh()


def at_most_one(map_B1hw: Tensor) -> Tensor:
    """Each image's map divided by its largest magnitude where that exceeds 1: never by something small."""
    return map_B1hw / map_B1hw.abs().amax((1, 2, 3), keepdim=True).clamp_min(1)


def structured_attention(channel_BC11: Tensor, spatial_B1hw: Tensor) -> Tensor:
    """A_str, eq. 3: their tensor product, B x C x h x w."""
    return channel_BC11 * spatial_B1hw


def apply_attention(carrier_BChw: Tensor, attention_BChw: Tensor) -> Tensor:
    """z_bar, eq. 4: (1 + A_str) carrier."""
    return carrier_BChw + attention_BChw * carrier_BChw


# The layer


class NonLocal(nn.Module):
    """v of one model's z: three 1 x 1 convolutions, their non-local sum and, by choice, an output layer."""

    def __init__(self, channels: int, config: LayerConfig) -> None:
        super().__init__()
        self.config = config
        inner = max(channels // config.bottleneck, 1)
        if config.output == "none":  # the sum is v itself, in parts of the inner width
            if channels % inner:
                raise UserError(
                    f"layer.bottleneck={config.bottleneck} does not divide the {channels} channels of z,"
                    " as layer.output=none needs."
                )
            self.theta, self.phi = (nn.Conv2d(channels, inner, 1) for _ in range(2))
            self.g = nn.Conv2d(channels, channels, 1)
            return
        self.theta, self.phi, self.g = (nn.Conv2d(channels, inner, 1) for _ in range(3))
        last = nn.Conv2d(inner, channels, 1)
        self.out = last if config.output == "conv" else nn.Sequential(last, nn.BatchNorm2d(channels))
        zero = last if config.output == "conv" else self.out[1]
        nn.init.zeros_(zero.weight)
        nn.init.zeros_(zero.bias)

    def forward(self, z_BChw: Tensor) -> Tensor:
        source = _pooled(z_BChw) if self.config.pool == "before" else z_BChw
        key, value = self.phi(source), self.g(source)
        if self.config.pool == "after":
            key, value = _pooled(key), _pooled(value)
        tokens = (x.flatten(2) for x in (self.theta(z_BChw), key, value))
        v_BChw = non_local(*tokens, self.config.scaled).unflatten(2, z_BChw.shape[-2:])
        if self.config.output != "none":
            v_BChw = self.out(v_BChw)
        return z_BChw + v_BChw if self.config.residual else v_BChw


class CafLayer(nn.Module):
    """z and, in training, the teacher's z -> z_bar. Without old features the fusion is skipped."""

    def __init__(self, channels: int, config: LayerConfig | None = None) -> None:
        super().__init__()
        self.config = config = config or LayerConfig()
        identity = nn.Identity()
        self.project_new = NonLocal(channels, config) if config.projection else identity
        if config.fusion:
            self.project_old = NonLocal(channels, config) if config.projection else identity
            self.fusion = nn.Conv2d(2 * channels, channels, 1)
            if config.start == "new":
                with torch.no_grad():  # [0 | I]
                    self.fusion.weight.zero_()
                    self.fusion.weight[:, channels:, 0, 0] = torch.eye(channels)
                    self.fusion.bias.zero_()
        if config.attention:
            hidden = _squeezed(channels)
            if config.channel == "excitation":
                self.squeeze = nn.Linear(channels, hidden, bias=False)
                self.excite = nn.Linear(hidden, channels, bias=False)
            else:
                self.channel = nn.Linear(channels, channels)
            self.spatial = nn.Conv2d(channels, 1, 1, bias=config.spatial != "contrast")
            if config.spatial == "energy":
                self.spatial_norm = nn.BatchNorm2d(1)
            if config.spatial == "contrast":  # no attention at first, but a full gradient towards it
                nn.init.zeros_(self.spatial.weight)

    def spec(self) -> dict[str, Any]:
        """The settings in words that JSON knows."""
        return asdict(self.config)

    @classmethod
    def from_spec(cls, channels: int, spec: dict[str, Any]) -> CafLayer:
        """The layer that `spec` describes, for z of so many channels."""
        return cls(channels, validate(LayerConfig, spec, "fusion"))

    def fuse(self, z_BChw: Tensor, old_z_BChw: Tensor | None = None, pad: bool = False) -> Tensor:
        """v(old, new); with `pad` zeros stand for v(old); without either v(new) alone."""
        new_BChw = self.project_new(z_BChw)
        if not self.config.fusion or (old_z_BChw is None and not pad):
            return new_BChw
        old_BChw = torch.zeros_like(new_BChw) if pad else self.project_old(old_z_BChw)
        return fuse_features(old_BChw, new_BChw, self.fusion.weight, self.fusion.bias)

    def channel_attention(self, v_BChw: Tensor) -> Tensor:
        """A_ch (eq. 2), B x C x 1 x 1."""
        if self.config.channel == "linear":
            return channel_vector(v_BChw, self.channel.weight, self.channel.bias)
        return excited_vector(v_BChw, self.squeeze.weight, self.excite.weight)

    def spatial_attention(self, v_BChw: Tensor) -> Tensor:
        """A_sp (eq. 1), B x 1 x h x w."""
        if self.config.spatial == "energy":
            with torch.autocast(v_BChw.device.type, enabled=False):  # squares leave half precision
                squares = _wide(v_BChw).square()
                return at_most_one(
                    self.spatial_norm(spatial_map(squares, self.spatial.weight, self.spatial.bias))
                )
        raw_B1hw = spatial_map(v_BChw, self.spatial.weight, self.spatial.bias)
        return contrast(raw_B1hw) if self.config.spatial == "contrast" else raw_B1hw

    def structured(self, v_BChw: Tensor) -> Tensor:
        """A_str (eq. 3): by which share each feature is raised or, where A is negative, lowered."""
        return structured_attention(self.channel_attention(v_BChw), self.spatial_attention(v_BChw))

    def forward(self, z_BChw: Tensor, old_z_BChw: Tensor | None = None, pad: bool = False) -> Tensor:
        v_BChw = self.fuse(z_BChw, old_z_BChw, pad)
        if self.config.attention:
            carrier_BChw = v_BChw if self.config.carrier == "v" else z_BChw
            return apply_attention(carrier_BChw, self.structured(v_BChw))
        if self.config.carrier == "v" or v_BChw is z_BChw:  # nothing was projected or fused
            return v_BChw
        return z_BChw + v_BChw

    def without_old(self) -> CafLayer:
        """A copy for test time that can only skip: the old branch and the fusion are gone."""
        slim = copy.deepcopy(self)
        if self.config.fusion:
            slim.config = replace(self.config, fusion=False)
            del slim.project_old, slim.fusion
        return slim


class Excitation(nn.Module):
    """The weights of AD_ch (eq. 5) for one map, and those that the teacher had.

    Frozen weights stay as drawn and are equal in both models, so they cannot be bent to lower the loss.
    """

    def __init__(self, width: int, trained: bool) -> None:
        super().__init__()
        self.trained, hidden = trained, _squeezed(width)
        for name, shape in (("squeeze", (hidden, width)), ("excite", (width, hidden))):
            weight = nn.init.kaiming_uniform_(torch.empty(shape), a=5**0.5)
            if self.trained:
                self.register_parameter(name, nn.Parameter(weight))
                self.register_buffer(f"old_{name}", weight.clone())
            else:
                self.register_buffer(name, weight)

    def remember(self) -> None:
        """The weights of the step before become the teacher's."""
        if self.trained:
            self.old_squeeze.copy_(self.squeeze.detach())
            self.old_excite.copy_(self.excite.detach())

    def weights(self, old: bool = False) -> tuple[Tensor, Tensor]:
        """Squeeze and excite, of the student or as the teacher has them."""
        return (self.old_squeeze, self.old_excite) if old and self.trained else (self.squeeze, self.excite)


def _squeezed(width: int) -> int:
    return max(width // REDUCTION, 4)


def _pooled(x_BChw: Tensor) -> Tensor:
    return F.max_pool2d(x_BChw, 2, ceil_mode=True)


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
