"""Quick depthwise convolutions: outputs bit for bit, gradients as those of the library, same weights."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from segue.core.config import ModelConfig
from segue.models._speed.depthwise import QuickDepthwise, _Depthwise, from_batch, quicken, to_batch
from segue.models.backbone import build_backbone

pytestmark = pytest.mark.precision("float32")  # others take the usual way


def pair(size: int, dilation: int, bias: bool = False) -> tuple[nn.Conv2d, nn.Conv2d]:
    torch.manual_seed(0)
    pad = dilation * (size // 2)
    plain = nn.Conv2d(32, 32, size, padding=pad, dilation=dilation, groups=32, bias=bias)
    plain = plain.to(memory_format=torch.channels_last)
    quick = copy.deepcopy(plain)
    quicken(quick)
    return plain, quick


def assert_within_rounding(ours: Tensor, exact: Tensor, terms: int) -> None:
    """Of a sum of products in single precision, whose factors are below five."""
    assert (ours - exact).abs().max() <= terms * torch.finfo(torch.float32).eps * 5 * 5


def maps(height: int, width: int, seed: int = 1) -> Tensor:
    x = torch.randn(3, 32, height, width, generator=torch.Generator().manual_seed(seed))
    return x.contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(("height", "width"), [(8, 8), (7, 10), (1, 3)])
@pytest.mark.parametrize(
    ("size", "dilation", "bias"),
    [(3, 4, True), (5, 1, False), (5, 2, True), (7, 2, False)],
)
def test_outputs_and_gradients(height: int, width: int, size: int, dilation: int, bias: bool) -> None:
    plain, quick = pair(size, dilation, bias)
    assert type(plain) is nn.Conv2d and type(quick) is QuickDepthwise
    found = []
    for conv in (plain, quick):
        x = maps(height, width).requires_grad_()
        y = conv(x)
        y.backward(maps(height, width, seed=2))
        found.append((y.detach(), x.grad, *(p.grad for p in conv.parameters())))
    assert torch.equal(found[0][0], found[1][0])
    exact_x = maps(height, width).double().requires_grad_()
    plain.double().zero_grad()
    plain(exact_x).backward(maps(height, width, seed=2).double())
    assert_within_rounding(found[1][1], exact_x.grad, terms=size**2)
    for ours, parameter in zip(found[1][2:], plain.parameters(), strict=True):
        assert_within_rounding(ours, parameter.grad, terms=3 * height * width)
    plain.float()
    with torch.inference_mode():
        assert torch.equal(plain(maps(height, width)), quick(maps(height, width)))


def test_gradient_by_differences() -> None:
    """Of the formulas themselves, which the module uses for float32 only."""
    for size, dilation in ((3, 2), (5, 1), (5, 4)):
        x = torch.randn(2, 2, 3, 4, dtype=torch.double, requires_grad=True)
        weight = torch.randn(2, 1, size, size, dtype=torch.double, requires_grad=True)
        bias = torch.randn(2, dtype=torch.double, requires_grad=True)
        assert torch.autograd.gradcheck(_Depthwise.apply, (x, weight, bias, dilation))


def test_only_what_is_wanted_is_computed() -> None:
    _, quick = pair(5, 2)
    quick.requires_grad_(False)
    x = maps(8, 8).requires_grad_()
    quick(x).sum().backward()
    assert x.grad is not None and quick.weight.grad is None
    assert not quick(maps(8, 8)).requires_grad


def test_half_precision_takes_the_usual_way() -> None:
    plain, quick = pair(5, 2)
    with torch.autocast("cpu", torch.bfloat16):
        ours, theirs = quick(maps(8, 8)), plain(maps(8, 8))
    assert ours.dtype == torch.bfloat16 and torch.equal(ours, theirs)
    ours.float().sum().backward()
    assert quick.weight.grad.dtype == torch.float32


def test_others_stay_as_they_are() -> None:
    others = nn.ModuleList(
        [
            nn.Conv2d(8, 8, 3, padding=1, groups=8),  # its gradient is quick already
            nn.Conv2d(8, 8, 3, padding=2, dilation=2),
            nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=4),
            nn.Conv2d(8, 16, 5, padding=2, groups=8),
            nn.Conv2d(8, 8, 5, padding=2, stride=2, groups=8),
            nn.Conv2d(8, 8, 5, padding=0, groups=8),
            nn.Conv2d(8, 8, 5, padding="same", groups=8),
            nn.Conv2d(8, 8, 5, padding=2, groups=8, padding_mode="reflect"),
            nn.Conv2d(8, 8, (5, 3), padding=(2, 1), groups=8),
            nn.Conv2d(8, 8, 1, dilation=2, groups=8),
        ]
    )
    quicken(others)
    assert all(type(conv) is nn.Conv2d for conv in others)


def test_space_to_batch_and_back() -> None:
    x = maps(7, 10)
    split = to_batch(x, 3)
    assert split.shape == (27, 32, 3, 4)
    torch.testing.assert_close(split[1, :, 0, :3], x[0, :, 0, 1:8:3], rtol=0, atol=0)
    assert split[2, :, 0, 3].eq(0).all(), "beyond the border"
    assert torch.equal(from_batch(split, 3, x.shape), x)


@pytest.mark.parametrize(("name", "count"), [("mobilenetv2_100", 3), ("tf_efficientnet_lite0", 9)])
def test_backbones_keep_their_names_and_random_numbers(name: str, count: int) -> None:
    import timm

    torch.manual_seed(0)
    body = timm.create_model(name, features_only=True, output_stride=16)
    drawn = torch.get_rng_state()
    torch.manual_seed(0)
    backbone = build_backbone(ModelConfig(backbone=name, output_stride=16))
    assert torch.equal(torch.get_rng_state(), drawn)
    assert sum(isinstance(module, QuickDepthwise) for module in backbone.modules()) == count
    backbone.body.load_state_dict(body.state_dict(), strict=True)
    x = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        for ours, theirs in zip(backbone.eval()(x), body.eval()(x), strict=True):
            assert torch.equal(ours, theirs)


def test_second_derivatives() -> None:
    x, weight = (
        torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
        for shape in ((1, 2, 5, 6), (2, 1, 3, 3))
    )
    assert torch.autograd.gradgradcheck(lambda x, w: _Depthwise.apply(x, w, None, 2), (x, weight))


@pytest.mark.parametrize(("size", "dilation"), [(3, 4), (5, 1), (5, 2), (5, 4)])
def test_what_follows_may_work_in_place(size: int, dilation: int) -> None:
    """As an activation does after a norm that is folded away."""
    plain, quick = pair(size, dilation)
    found = []
    for conv in (plain, quick):
        x = maps(8, 8).requires_grad_()
        y = nn.ReLU6(inplace=True)(conv(x))
        y.sum().backward()
        found.append((y.detach(), x.grad))
    assert torch.equal(found[0][0], found[1][0])
    assert_within_rounding(found[1][1], found[0][1].double(), terms=2 * size**2)


def test_dilated_backbone_with_folded_norms_is_trained() -> None:
    """5 x 5 at output stride 8: space goes to the batch there, and activations work in place."""
    from segue.models.segmenter import Segmenter

    config = ModelConfig(backbone="tf_efficientnet_lite0", output_stride=8, head="tiny")
    torch.manual_seed(0)
    model = Segmenter(config)
    model.norm_frozen = True
    model.train()
    model.encode(torch.zeros(2, 3, 64, 64, dtype=torch.uint8))[-1].sum().backward()
    assert all(p.grad is not None for p in model.backbone.parameters())
