"""Attentive distillation: attention maps by hand, what the loss does not depend on, poor maps."""

import pytest
import torch
from torch import Tensor

from segue.losses import attend, attentive_distillation, channel_attention, spatial_attention

CHANNELS, SQUEEZED = 6, 4


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def weights(scale: float = 1.0) -> tuple[Tensor, Tensor]:
    """Squeeze and excite; scale 0 weighs all channels alike."""
    return scale * draw(SQUEEZED, CHANNELS, seed=10), scale * draw(CHANNELS, SQUEEZED, seed=11)


def distance(new: Tensor, old: Tensor, scale: float = 1.0) -> Tensor:
    return attentive_distillation(new, old, *weights(scale))


# Attention


def test_channel_attention_by_hand() -> None:
    m = torch.tensor([[[[3.0, -1.0]], [[5.0, -9.0]]]])  # means 1 and -2
    squeeze, excite = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([[1.0, 4.0], [-0.5, 4.0]])
    # squeezed 2 and -2, of which relu leaves 2 and 0; excited 2 and -1
    expected = torch.tensor([2.0, -1.0]).sigmoid().view(1, 2, 1, 1)
    torch.testing.assert_close(channel_attention(m, squeeze, excite), expected)


def test_channel_attention_is_one_number_in_0_1_per_channel_and_image() -> None:
    m = draw(3, CHANNELS, 4, 5)
    s = channel_attention(m, *weights())
    assert s.shape == (3, CHANNELS, 1, 1) and (s > 0).all() and (s < 1).all()
    torch.testing.assert_close(s[1:2], channel_attention(m[1:2], *weights()))


def test_spatial_attention_by_hand() -> None:
    m = torch.tensor([[[[1.0, 0.0]], [[1.0, 2.0]]]])  # energies 2 and 4
    expected = torch.tensor([2.0, 4.0]).view(1, 1, 1, 2) / 20**0.5
    torch.testing.assert_close(spatial_attention(m), expected)


def test_spatial_attention_has_norm_one_per_image() -> None:
    m = draw(3, CHANNELS, 5, 4) * torch.tensor([0.1, 1, 100]).view(3, 1, 1, 1)
    a = spatial_attention(m)
    assert a.shape == (3, 1, 5, 4)
    torch.testing.assert_close(torch.linalg.vector_norm(a, dim=(1, 2, 3)), torch.ones(3).double())


@pytest.mark.parametrize("scale", [1e-3, -1.0, 1e4])
def test_spatial_attention_does_not_see_the_scale(scale: float) -> None:
    m = draw(2, CHANNELS, 3, 3)
    torch.testing.assert_close(spatial_attention(scale * m), spatial_attention(m))


def test_attend_weighs_channels_then_places() -> None:
    m, s = draw(2, CHANNELS, 3, 3), draw(2, CHANNELS, 1, 1, seed=1).sigmoid()
    weighted = (1 + s) * m
    energy = (weighted**2).sum(1, keepdim=True)
    norm = (energy**2).sum((1, 2, 3), keepdim=True).sqrt()
    torch.testing.assert_close(attend(m, s), energy / norm * weighted)


def test_attend_lets_no_gradient_through_the_spatial_factor() -> None:
    m, s = draw(2, CHANNELS, 3, 3).requires_grad_(), draw(2, CHANNELS, 1, 1, seed=1).sigmoid()
    factor = spatial_attention((1 + s) * m).detach()
    upstream = draw(2, CHANNELS, 3, 3, seed=2)
    (got,) = torch.autograd.grad(attend(m, s), m, upstream)
    torch.testing.assert_close(got, factor * (1 + s) * upstream)


# The loss


def test_equal_maps_cost_nothing_and_pull_nowhere() -> None:
    m = draw(2, CHANNELS, 4, 4)
    new = m.clone().requires_grad_()
    value = distance(new, m)
    value.backward()
    assert value.item() == 0 and new.grad.abs().max() == 0
    assert distance(m + 0.1, m) > 0


def test_a_student_that_feels_nothing_is_at_distance_one() -> None:
    old = draw(2, CHANNELS, 4, 4)
    assert distance(torch.zeros_like(old), old).item() == pytest.approx(1)


def test_by_hand_with_equal_channel_weights() -> None:
    """s = 1/2 everywhere, one channel, two places: a = energy / norm, AD = a * 1.5 m."""
    old, new = torch.tensor([[[[1.0, 2.0]]]]).double(), torch.tensor([[[[2.0, 1.0]]]]).double()
    flat = torch.zeros(1, 1, dtype=torch.float64)
    # up to one constant AD(old) = (1, 8) and AD(new) = (8, 1): (49 + 49) / 65
    assert attentive_distillation(new, old, flat, flat).item() == pytest.approx(98 / 65)


@pytest.mark.parametrize("scale", [0.0, 1.0])
def test_size_of_the_map_does_not_matter(scale: float) -> None:
    new, old = draw(2, CHANNELS, 3, 4), draw(2, CHANNELS, 3, 4, seed=1)
    tiled = distance(new.tile(1, 1, 2, 2), old.tile(1, 1, 2, 2), scale)
    torch.testing.assert_close(tiled, distance(new, old, scale))


@pytest.mark.parametrize("scale", [0.0, 1.0])
def test_size_of_the_batch_does_not_matter(scale: float) -> None:
    new, old = draw(2, CHANNELS, 3, 4), draw(2, CHANNELS, 3, 4, seed=1)
    torch.testing.assert_close(
        distance(new.repeat(3, 1, 1, 1), old.repeat(3, 1, 1, 1), scale), distance(new, old, scale)
    )


@pytest.mark.parametrize("factor", [1e-2, 10.0, 1e3])
def test_scale_of_the_features_does_not_matter(factor: float) -> None:
    """Exact where the channel weights stay the same; they depend on the scale through a sigmoid."""
    new, old = draw(2, CHANNELS, 3, 4), draw(2, CHANNELS, 3, 4, seed=1)
    torch.testing.assert_close(distance(factor * new, factor * old, 0.0), distance(new, old, 0.0))


def test_gradients_reach_the_student() -> None:
    new, old = draw(2, CHANNELS, 3, 3).requires_grad_(), draw(2, CHANNELS, 3, 3, seed=1)
    distance(new, old).backward()
    assert torch.isfinite(new.grad).all() and (new.grad != 0).all()


# Poor maps and half precision


def test_constant_maps_are_attended_evenly() -> None:
    a = spatial_attention(torch.full((2, CHANNELS, 4, 8), 3.0))
    torch.testing.assert_close(a, torch.full((2, 1, 4, 8), 32**-0.5))


@pytest.mark.parametrize(("new", "old"), [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (2.0, 1.0)])
def test_constant_and_dead_maps_stay_finite(new: float, old: float) -> None:
    student = torch.full((2, CHANNELS, 3, 3), new, requires_grad=True)
    squeeze, excite = (w.float() for w in weights())
    value = attentive_distillation(student, torch.full((2, CHANNELS, 3, 3), old), squeeze, excite)
    value.backward()
    assert torch.isfinite(value) and torch.isfinite(student.grad).all()
    assert (value.item() == 0) == (new == old)


@pytest.mark.parametrize("shape", [(1, CHANNELS, 1, 1), (2, CHANNELS, 1, 5)])
def test_small_maps(shape: tuple[int, ...]) -> None:
    value = distance(draw(*shape), draw(*shape, seed=1))
    assert torch.isfinite(value) and value > 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("mixed", [False, True])
def test_loss_takes_half_precision(dtype: torch.dtype, mixed: bool) -> None:
    new = (50 * draw(2, CHANNELS, 4, 4)).clamp(-250, 250).to(dtype).requires_grad_()
    old = (50 * draw(2, CHANNELS, 4, 4, seed=1)).to(torch.float32 if mixed else dtype)
    squeeze, excite = (w.float() for w in weights())
    for student, teacher in ((new, old), (old.detach().requires_grad_(), new.detach())):
        value = attentive_distillation(student, teacher, squeeze, excite)
        value.backward()
        assert torch.isfinite(value) and torch.isfinite(student.grad).all() and student.grad.abs().sum() > 0
        exact = attentive_distillation(
            student.detach().double(), teacher.detach().double(), squeeze.double(), excite.double()
        )
        assert value.item() == pytest.approx(exact.item(), rel=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_spatial_attention_takes_half_precision(dtype: torch.dtype) -> None:
    m = torch.full((1, 64, 4, 4), 50.0, dtype=dtype)  # its energy, 160000, is beyond float16
    torch.testing.assert_close(spatial_attention(m), torch.full((1, 1, 4, 4), 0.25))
