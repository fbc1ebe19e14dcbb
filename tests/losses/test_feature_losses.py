"""Attentive distillation: attention maps by hand, both forms, what the loss does not depend on, poor maps."""

import pytest
import torch
from torch import Tensor

from segue.losses import attend, attentive_distance, channel_attention, spatial_attention

CHANNELS, SQUEEZED = 6, 4
FORMS = ("product", "printed")
NORMS = ("teacher", "map", "mean")


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def weights(scale: float = 1.0) -> tuple[Tensor, Tensor]:
    """Squeeze and excite; scale 0 weighs all channels alike."""
    return scale * draw(SQUEEZED, CHANNELS, seed=10), scale * draw(CHANNELS, SQUEEZED, seed=11)


def distance(
    new: Tensor,
    old: Tensor,
    norm: str = "teacher",
    form: str = "product",
    scale: float = 1.0,
    channel: bool = True,
    spatial: bool = True,
    detach: bool = True,
) -> Tensor:
    """One term of L_AD, from two maps."""
    wide = torch.float64 if new.dtype == torch.float64 else torch.float32
    excitation = [weight.to(wide) for weight in weights(scale)]
    attended = []
    for m in (new, old):
        s = channel_attention(m.to(wide), *excitation) if channel else None
        attended.append(attend(m, s, spatial, form, detach))
    return attentive_distance(*attended, norm, unit_energy=form == "product" and spatial)


def energy(m: Tensor) -> Tensor:
    """AD_sp, place by place."""
    squares = (m**2).sum(1, keepdim=True)
    return squares / (squares**2).sum((1, 2, 3), keepdim=True).sqrt()


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


# The two forms


@pytest.mark.parametrize("detach", [True, False])
def test_product_form_weighs_channels_then_places(detach: bool) -> None:
    m, s = draw(2, CHANNELS, 3, 3), draw(2, CHANNELS, 1, 1, seed=1).sigmoid()
    weighted = m + s * m
    torch.testing.assert_close(attend(m, s, detach=detach), energy(weighted) * weighted)
    torch.testing.assert_close(attend(m, s, spatial=False, detach=detach), weighted)
    torch.testing.assert_close(attend(m, None, detach=detach), energy(m) * m)
    assert (attend(m, s) - energy(m) * weighted).abs().max() > 1e-3  # the energy is that of (1 + s) m


@pytest.mark.parametrize("detach", [True, False])
def test_printed_form_adds_the_structured_attention(detach: bool) -> None:
    m, s = draw(2, CHANNELS, 3, 3), draw(2, CHANNELS, 1, 1, seed=1).sigmoid()
    structured = torch.einsum("bc,bhw->bchw", s[:, :, 0, 0], energy(m)[:, 0])
    torch.testing.assert_close(attend(m, s, form="printed", detach=detach), (structured + 1) * m)
    torch.testing.assert_close(attend(m, s, spatial=False, form="printed", detach=detach), (s + 1) * m)
    torch.testing.assert_close(attend(m, None, form="printed", detach=detach), (energy(m) + 1) * m)


@pytest.mark.parametrize("form", FORMS)
def test_without_both_parts_it_is_plain_feature_distillation(form: str) -> None:
    """Row FD of Table 6."""
    new, old = draw(2, CHANNELS, 3, 4), draw(2, CHANNELS, 3, 4, seed=1)
    assert torch.equal(attend(new, None, spatial=False, form=form), new)
    assert attend(new.half(), None, spatial=False, form=form).dtype == torch.float32  # squares overflow
    plain = distance(new, old, "mean", form, channel=False, spatial=False)
    torch.testing.assert_close(plain, torch.nn.functional.mse_loss(new, old))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("channel", [True, False])
def test_detached_energy_is_a_constant_weight(form: str, channel: bool) -> None:
    m = draw(2, CHANNELS, 3, 3).requires_grad_()
    s = draw(2, CHANNELS, 1, 1, seed=1).sigmoid().requires_grad_() if channel else None
    upstream = draw(2, CHANNELS, 3, 3, seed=2)
    leaves = [m] if s is None else [m, s]

    def by_hand(constant: bool) -> list[Tensor]:
        if form == "product":
            weighted = m if s is None else (1 + s) * m
            factor = energy(weighted).detach() if constant else energy(weighted)
            out = factor * weighted
        else:
            factor = energy(m).detach() if constant else energy(m)
            out = (1 + (factor if s is None else s * factor)) * m
        return list(torch.autograd.grad(out, leaves, upstream))

    on, off = (
        torch.autograd.grad(attend(m, s, form=form, detach=detach), leaves, upstream)
        for detach in (True, False)
    )
    for ours, expected in zip([*on, *off], [*by_hand(True), *by_hand(False)], strict=True):
        torch.testing.assert_close(ours, expected)
    assert (on[0] - off[0]).abs().max() > 1e-2


# The loss


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("detach", [True, False])
def test_equal_maps_cost_nothing_and_pull_nowhere(norm: str, form: str, detach: bool) -> None:
    m = draw(2, CHANNELS, 4, 4)
    new = m.clone().requires_grad_()
    value = distance(new, m, norm, form, detach=detach)
    value.backward()
    assert value.item() == 0 and new.grad.abs().max() == 0
    assert distance(m + 0.1, m, norm, form, detach=detach) > 0


@pytest.mark.parametrize("form", FORMS)
def test_a_student_that_feels_nothing_is_at_distance_one(form: str) -> None:
    old = draw(2, CHANNELS, 4, 4)
    assert distance(torch.zeros_like(old), old, form=form).item() == pytest.approx(1)


def test_by_hand_with_equal_channel_weights() -> None:
    """s = 1/2 everywhere, one channel, two places: a = energy / norm, AD = a * 1.5 m."""
    old, new = torch.tensor([[[[1.0, 2.0]]]]).double(), torch.tensor([[[[2.0, 1.0]]]]).double()
    half = torch.full((1, 1, 1, 1), 0.5).double()
    attended = attend(new, half), attend(old, half)
    # up to 1.5 / sqrt(17) AD(old) = (1, 8) and AD(new) = (8, 1): (49 + 49) / (1 + 64)
    assert attentive_distance(*attended, "teacher").item() == pytest.approx(98 / 65)
    mean = 1.5**2 / 17 * 98 / 2
    assert attentive_distance(*attended, "mean").item() == pytest.approx(mean)
    assert attentive_distance(*attended, "map").item() == pytest.approx(mean * 2 / 1024)
    assert attentive_distance(*attended, "map", unit_energy=False).item() == pytest.approx(mean / 1024)


def test_each_image_is_measured_by_its_own_teacher() -> None:
    """A loud image does not drown a quiet one."""
    new, old = draw(2, CHANNELS, 3, 4), draw(2, CHANNELS, 3, 4, seed=1)
    loud = torch.tensor([1.0, 1e3]).double().view(2, 1, 1, 1)
    alone = [distance(new[b : b + 1], old[b : b + 1], scale=0) for b in range(2)]
    torch.testing.assert_close(distance(loud * new, loud * old, scale=0), sum(alone) / 2)


def test_norm_map_is_the_plain_mean_at_the_size_of_the_paper() -> None:
    new, old = draw(2, CHANNELS, 32, 32), draw(2, CHANNELS, 32, 32, seed=1)
    assert (distance(new, old, "map") / distance(new, old, "mean")).item() == pytest.approx(1)
    new, old = new[:, :, :16], old[:, :, :16]
    assert (distance(new, old, "map") / distance(new, old, "mean")).item() == pytest.approx(1 / 2)
    for spatial, form in ((False, "product"), (True, "printed")):  # no energy of norm 1: a mean as it is
        values = [distance(new, old, norm, form, spatial=spatial) for norm in ("map", "mean")]
        ratio = values[0] / values[1]
        assert ratio.item() == pytest.approx(1 / 1024)


@pytest.mark.parametrize("channel", [True, False])
@pytest.mark.parametrize(("norm", "factor"), [("teacher", 1), ("map", 1), ("mean", 1 / 6)])
def test_size_of_the_map_does_not_matter(norm: str, factor: float, channel: bool) -> None:
    """The plain mean is what falls with the number of places."""
    new, old = draw(2, CHANNELS, 3, 4), draw(2, CHANNELS, 3, 4, seed=1)
    large = (m.repeat_interleave(2, 2).repeat_interleave(3, 3) for m in (new, old))
    expected = factor * distance(new, old, norm, channel=channel)
    torch.testing.assert_close(distance(*large, norm, channel=channel), expected)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("spatial", [True, False])
def test_size_of_the_batch_does_not_matter(norm: str, form: str, spatial: bool) -> None:
    new, old = draw(2, CHANNELS, 3, 4), draw(2, CHANNELS, 3, 4, seed=1)
    many = (m.repeat(3, 1, 1, 1) for m in (new, old))
    expected = distance(new, old, norm, form, spatial=spatial)
    torch.testing.assert_close(distance(*many, norm, form, spatial=spatial), expected)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("factor", [1e-2, 10.0, 1e3])
def test_scale_of_the_features_does_not_matter(factor: float, form: str) -> None:
    """Exact where the channel weights stay the same; they depend on the scale through a sigmoid."""
    new, old = draw(2, CHANNELS, 3, 4), draw(2, CHANNELS, 3, 4, seed=1)
    for parts in ({"scale": 0.0}, {"channel": False}, {"channel": False, "spatial": False}):
        ours = distance(factor * new, factor * old, form=form, **parts)
        torch.testing.assert_close(ours, distance(new, old, form=form, **parts))
    plain = distance(factor * new, factor * old, "mean", form, channel=False)
    torch.testing.assert_close(plain, factor**2 * distance(new, old, "mean", form, channel=False))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("form", FORMS)
def test_gradients_reach_the_student(norm: str, form: str) -> None:
    new, old = draw(2, CHANNELS, 3, 3).requires_grad_(), draw(2, CHANNELS, 3, 3, seed=1)
    distance(new, old, norm, form).backward()
    assert torch.isfinite(new.grad).all() and (new.grad != 0).all()


# Poor maps and half precision


def test_constant_maps_are_attended_evenly() -> None:
    a = spatial_attention(torch.full((2, CHANNELS, 4, 8), 3.0))
    torch.testing.assert_close(a, torch.full((2, 1, 4, 8), 32**-0.5))


@pytest.mark.parametrize("detach", [True, False])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("new", "old"), [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (2.0, 1.0)])
def test_constant_and_dead_maps_stay_finite(new: float, old: float, form: str, detach: bool) -> None:
    for norm in NORMS:
        student = torch.full((2, CHANNELS, 3, 3), new, requires_grad=True)
        value = distance(student, torch.full((2, CHANNELS, 3, 3), old), norm, form, detach=detach)
        value.backward()
        assert torch.isfinite(value) and torch.isfinite(student.grad).all()
        assert (value.item() == 0) == (new == old)


@pytest.mark.parametrize("shape", [(1, CHANNELS, 1, 1), (2, CHANNELS, 1, 5)])
def test_small_maps(shape: tuple[int, ...]) -> None:
    for norm in NORMS:
        value = distance(draw(*shape), draw(*shape, seed=1), norm)
        assert torch.isfinite(value) and value > 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_loss_takes_half_precision(dtype: torch.dtype, mixed: bool, form: str) -> None:
    new = (150 * draw(2, CHANNELS, 4, 4)).clamp(-400, 400).to(dtype).requires_grad_()  # squares overflow
    old = (150 * draw(2, CHANNELS, 4, 4, seed=1)).to(torch.float32 if mixed else dtype)
    for student, teacher in ((new, old), (old.detach().requires_grad_(), new.detach())):
        value = distance(student, teacher, form=form)
        value.backward()
        assert torch.isfinite(value) and torch.isfinite(student.grad).all() and student.grad.abs().sum() > 0
        exact = distance(student.detach().double(), teacher.detach().double(), form=form)
        assert value.item() == pytest.approx(exact.item(), rel=1e-4)
