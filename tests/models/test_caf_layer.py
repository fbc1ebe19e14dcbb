"""The CAF layer: identity at the start, what it depends on, gradients, odd sizes, attention by the book."""

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck
from torch.func import functional_call

from segue.core.config import ModelConfig
from segue.core.scenario import Step
from segue.models.caf import CafLayer, NonLocal
from segue.models.segmenter import Segmenter

CHANNELS = 6


def layer(channels: int = CHANNELS, trained: bool = False) -> CafLayer:
    """A layer as it starts, or with random weights everywhere."""
    torch.manual_seed(0)
    made = CafLayer(channels)
    if trained:
        for parameter in made.parameters():
            nn.init.normal_(parameter, std=0.5)
    return made


def draw(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


# At the start


@pytest.mark.parametrize("size", [(8, 8), (7, 5), (1, 1)])
@pytest.mark.parametrize("concat", [False, True])
def test_starts_as_the_identity(size: tuple[int, int], concat: bool) -> None:
    z, old = 10 * draw(2, 64, *size), 10 * draw(2, 64, *size, seed=2)
    with torch.no_grad():
        z_bar = layer(64)(z, old if concat else None)
    assert (z_bar - z).abs().max() <= 1e-5


@pytest.mark.parametrize("concat", [False, True])
def test_changes_no_logit_of_a_trained_model(concat: bool) -> None:
    torch.manual_seed(0)
    model = Segmenter(ModelConfig(backbone="tiny", head="tiny", output_stride=8))
    model.grow(Step(0, (1, 2, 3)), balanced=False)
    images = torch.randint(0, 256, (2, 3, 48, 40), dtype=torch.uint8)
    model.train()(images)  # running statistics other than 0 and 1
    model.eval()
    with torch.no_grad():
        before = model(images)
        model.fusion = layer(model.backbone.channels[-1])
        old_z = draw(*before.features["z"].shape) if concat else None
        after = model(images, old_z)
    assert before.logits.std() > 0.01
    assert (after.logits - before.logits).abs().max() <= 1e-5


def test_a_trained_layer_is_no_identity() -> None:
    z = draw(2, CHANNELS, 4, 4)
    for old in (None, draw(2, CHANNELS, 4, 4, seed=2)):
        assert (layer(trained=True)(z, old) - z).abs().max() > 0.1


# What it depends on


def test_skip_knows_nothing_of_old_features() -> None:
    """Neither the old branch nor the fusion matters when there are no old features."""
    made, z = layer(trained=True), draw(2, CHANNELS, 4, 4)
    with torch.no_grad():
        before = made(z)
        for parameter in [*made.project_old.parameters(), *made.fusion.parameters()]:
            parameter.mul_(-3).add_(1)
        assert torch.equal(made(z), before)


def test_concat_depends_on_old_features() -> None:
    made, z = layer(trained=True), draw(2, CHANNELS, 4, 4)
    with torch.no_grad():
        outs = [made(z, draw(2, CHANNELS, 4, 4, seed=seed)) for seed in (2, 3)]
        zeros = made(z, torch.zeros_like(z))
    assert (outs[0] - outs[1]).abs().max() > 0.1 and (outs[0] - zeros).abs().max() > 0.1
    assert (outs[0] - made(z)).abs().max() > 0.1


def test_images_of_a_batch_do_not_mix() -> None:
    made, z, old = layer(trained=True), draw(3, CHANNELS, 4, 4), draw(3, CHANNELS, 4, 4, seed=2)
    with torch.no_grad():
        torch.testing.assert_close(made(z, old)[1:2], made(z[1:2], old[1:2]))


@pytest.mark.parametrize("size", [(1, 1), (1, 5), (3, 7)])
def test_odd_sizes(size: tuple[int, int]) -> None:
    z, old = draw(2, CHANNELS, *size), draw(2, CHANNELS, *size, seed=2)
    out = layer(trained=True)(z, old)
    assert out.shape == z.shape and torch.isfinite(out).all()


# Gradients


def test_gradients_reach_every_part() -> None:
    made = layer(trained=True)
    made(draw(2, CHANNELS, 4, 4), draw(2, CHANNELS, 4, 4, seed=2)).square().sum().backward()
    for name, parameter in made.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().max() > 0, name


def test_the_parts_that_start_at_zero_can_leave_it() -> None:
    """At the start spatial map, new projection and fusion already have gradients."""
    made = layer()
    made(draw(2, CHANNELS, 4, 4), draw(2, CHANNELS, 4, 4, seed=2)).pow(3).sum().backward()
    for parameter in (made.spatial.weight, made.project_new.out.weight, made.fusion.weight):
        assert parameter.grad.abs().max() > 0
    assert made.fusion.weight.grad[:, :CHANNELS].abs().max() > 0  # the old half too


def test_one_update_makes_old_features_count() -> None:
    made, z, old = layer(), draw(2, CHANNELS, 4, 4), draw(2, CHANNELS, 4, 4, seed=2)
    made(z, old).pow(3).sum().backward()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter -= 0.01 * parameter.grad
        assert (made(z, old) - made(z, 2 * old)).abs().max() > 1e-3


@pytest.mark.parametrize("concat", [False, True])
def test_numerical_gradients(concat: bool) -> None:
    made = layer(4, trained=True).double()
    names = [name for name, _ in made.named_parameters()]
    z, old = (draw(1, 4, 2, 3, seed=seed).double().requires_grad_() for seed in (1, 2))

    def forward(z: Tensor, old: Tensor, *values: Tensor) -> Tensor:
        return functional_call(made, dict(zip(names, values, strict=True)), (z, old if concat else None))

    assert gradcheck(forward, (z, old, *made.parameters()))


# By the book


@pytest.mark.parametrize("size", [(4, 6), (5, 3), (1, 1)])
def test_projection_is_softmax_of_scaled_products(size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    block = NonLocal(8).double()
    for parameter in block.parameters():
        nn.init.normal_(parameter)
    z = draw(2, 8, *size).double()
    pooled = nn.functional.max_pool2d(z, 2, ceil_mode=True)
    assert pooled.shape[2:] == (-(-size[0] // 2), -(-size[1] // 2))
    query, key, value = block.theta(z).flatten(2), block.phi(pooled).flatten(2), block.g(pooled).flatten(2)
    attention = torch.einsum("bdq,bdk->bqk", query, key).div(4**0.5).softmax(-1)  # inner width 8 / 2
    mixed = torch.einsum("bqk,bdk->bdq", attention, value).reshape(2, 4, *size)
    torch.testing.assert_close(block(z), z + block.out(mixed))


def test_output_is_the_structured_attention_on_the_fused_map() -> None:
    made, z, old = layer(trained=True), draw(2, CHANNELS, 3, 3), draw(2, CHANNELS, 3, 3, seed=2)
    with torch.no_grad():
        v = made.fusion(torch.cat([made.project_old(old), made.project_new(z)], 1))
        channel, spatial = made.attention(v)
        assert channel.shape == (2, CHANNELS, 1, 1) and spatial.shape == (2, 1, 3, 3)
        structured = torch.einsum("bc,bhw->bchw", channel[:, :, 0, 0], spatial[:, 0])
        torch.testing.assert_close(made(z, old), (1 + structured) * v)


def test_spatial_attention_is_the_channel_mean_of_a_convolution() -> None:
    """Eq. 1 convolves and then averages the channels: one convolution to one channel does both."""
    torch.manual_seed(0)
    omega, made, v = nn.Conv2d(CHANNELS, CHANNELS, 1), layer(), draw(2, CHANNELS, 3, 4)
    with torch.no_grad():
        made.spatial.weight.copy_(omega.weight.mean(0, keepdim=True))
        made.spatial.bias.copy_(omega.bias.mean(0, keepdim=True))
        torch.testing.assert_close(made.attention(v)[1], omega(v).mean(1, keepdim=True).tanh())


def test_channel_attention_needs_the_pooled_map_only() -> None:
    """Eq. 2 convolves and then pools: pooling a 1 x 1 convolution is a linear layer on the pooled map."""
    made, v = layer(), draw(2, CHANNELS, 3, 4)
    squeeze = made.channel[0]
    with torch.no_grad():
        pooled = nn.functional.conv2d(v, squeeze.weight[:, :, None, None]).mean((2, 3))
        torch.testing.assert_close(squeeze(v.mean((2, 3))), pooled)
        expected = made.channel[2](pooled.relu()).sigmoid()[:, :, None, None]
        torch.testing.assert_close(made.attention(v)[0], expected)
