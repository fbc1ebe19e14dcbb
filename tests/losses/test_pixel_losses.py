"""Cross-entropy and distillation: cases worked out by hand, poor inputs, low resolution, half precision."""

from math import log

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from segue.losses import (
    background_balance,
    cross_entropy,
    incremental_losses,
    unbiased_cross_entropy,
    unbiased_distillation,
    upsample,
)

HALVES = [torch.float16, torch.bfloat16]


def logs(*weights: float) -> Tensor:
    """Logits whose softmax is proportional to the weights, the same at all 2 x 2 pixels."""
    return torch.tensor(weights, dtype=torch.float64).log().view(1, -1, 1, 1).expand(1, -1, 2, 2)


def draw(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def supervised(name: str, logits: Tensor, labels: Tensor) -> Tensor:
    """A supervised loss by name; the unbiased one takes two channels as old."""
    return cross_entropy(logits, labels) if name == "ce" else unbiased_cross_entropy(logits, labels, 2)


# By hand


def test_cross_entropy_counts_void_pixels_in_the_mean() -> None:
    logits = torch.tensor([[0, 0], [log(3), 0], [0, log(3)], [9, -9]], dtype=torch.float64)
    labels = torch.tensor([[[0, 0], [0, 255]]])
    # p(0) = 1/2, 3/4, 1/4 and a void pixel: (log 2 + log 4/3 + log 4) / 4, not / 3
    value = cross_entropy(logits.T.reshape(1, 2, 2, 2), labels)
    assert value.item() == pytest.approx(log(32 / 3) / 4, abs=1e-12)


def test_unbiased_cross_entropy_merges_old_classes_into_background() -> None:
    logits = logs(1, 2, 5)  # background, old, new
    labels = torch.tensor([[[0, 1], [2, 255]]])
    # background or old: 3/8, whether the label is 0 or the old class; new: 5/8; one void pixel
    value = unbiased_cross_entropy(logits, labels, num_old=2)
    assert value.item() == pytest.approx((2 * log(8 / 3) + log(8 / 5)) / 4, abs=1e-12)


def test_background_of_an_earlier_image_may_be_a_new_class_but_is_no_old_one() -> None:
    logits, labels = logs(1, 2, 5).expand(2, -1, -1, -1), torch.tensor([[[0, 1], [2, 255]]]).expand(2, -1, -1)
    value, _ = incremental_losses(
        logits, logs(1, 3).expand(2, -1, -1, -1), labels, num_old=2, earlier_B=torch.tensor([False, True])
    )
    own = 2 * log(8 / 3) + log(8 / 5)
    # background or new: 6/8; old: 2/8; new: 5/8
    earlier = log(8 / 6) + log(8 / 2) + log(8 / 5)
    assert value.item() == pytest.approx((own + earlier) / 8, abs=1e-12)


def test_unbiased_distillation_merges_new_classes_into_background() -> None:
    teacher, student = logs(1, 3), logs(1, 2, 5)  # student: background, old, new
    # teacher 1/4, 3/4; student 6/8 (background or new), 2/8 (old); divided by the 2 old channels
    value = unbiased_distillation(student, teacher)
    assert value.item() == pytest.approx(-(log(6 / 8) / 4 + 3 * log(2 / 8) / 4) / 2, abs=1e-12)


def test_background_weight_scales_the_background_term_of_its_image() -> None:
    teacher = torch.cat([logs(1, 3), logs(4, 1)])
    student = logs(1, 2, 5).expand(2, -1, 2, 2)  # 6/8 background or new, 2/8 old
    background = [-log(6 / 8) / 4, -4 * log(6 / 8) / 5]
    kept = [-3 * log(2 / 8) / 4, -log(2 / 8) / 5]
    value = unbiased_distillation(student, teacher, torch.tensor([0.5, 3.0]))
    expected = (0.5 * background[0] + kept[0] + 3.0 * background[1] + kept[1]) / 2 / 2
    assert value.item() == pytest.approx(expected, abs=1e-12)
    unweighted = unbiased_distillation(student, teacher, 0.0)
    assert unweighted.item() == pytest.approx(sum(kept) / 2 / 2, abs=1e-12)


def test_distillation_is_a_mean_over_pixels_and_images() -> None:
    student, teacher = draw(2, 5, 3, 4), draw(2, 3, 3, 4, seed=1)
    whole = unbiased_distillation(student, teacher)
    pixels = [
        [maps[b : b + 1, :, y : y + 1, x : x + 1] for maps in (student, teacher)]
        for b in range(2)
        for y in range(3)
        for x in range(4)
    ]
    alone = torch.stack([unbiased_distillation(*pixel) for pixel in pixels])
    torch.testing.assert_close(whole, alone.mean())


# What the losses promise


@pytest.mark.parametrize("gamma", [1, 1.0, torch.ones(2)])
def test_gamma_of_one_is_plain_unbiased_distillation(gamma: Tensor | float) -> None:
    student, teacher = draw(2, 6, 4, 4), draw(2, 4, 4, 4, seed=1)
    torch.testing.assert_close(
        unbiased_distillation(student, teacher, gamma), unbiased_distillation(student, teacher)
    )


@pytest.mark.parametrize("channels", [3, 2])
def test_distillation_refuses_a_student_without_new_classes(channels: int) -> None:
    with pytest.raises(ValueError, match=f"needs new classes: 3 old of {channels}"):
        unbiased_distillation(draw(1, channels, 2, 2), draw(1, 3, 2, 2))


def test_one_old_channel_gives_plain_cross_entropy() -> None:
    logits = draw(2, 4, 5, 5).requires_grad_()
    labels = torch.randint(0, 4, (2, 5, 5), generator=torch.Generator().manual_seed(2))
    labels[0, 0] = 255
    plain, unbiased = cross_entropy(logits, labels), unbiased_cross_entropy(logits, labels, 1)
    torch.testing.assert_close(unbiased, plain)
    torch.testing.assert_close(
        torch.autograd.grad(unbiased, logits)[0], torch.autograd.grad(plain, logits)[0]
    )


@pytest.mark.parametrize("name", ["ce", "unbiased"])
def test_low_resolution_logits_equal_interpolation_and_loss(name: str) -> None:
    low = draw(2, 4, 3, 5)
    labels = torch.randint(0, 4, (2, 24, 37), generator=torch.Generator().manual_seed(1))
    full = F.interpolate(low, size=(24, 37), mode="bilinear", align_corners=False)
    torch.testing.assert_close(supervised(name, low, labels), supervised(name, full, labels))
    # and this is not the loss of the low resolution itself
    assert not torch.isclose(
        supervised(name, full, labels), supervised(name, low, labels[:, ::8, ::8][:, :, :5])
    )


def test_low_resolution_distillation_equals_interpolation_and_loss() -> None:
    student, teacher = draw(2, 5, 3, 4, scale=3), draw(2, 3, 3, 4, seed=1, scale=3)
    value = unbiased_distillation(student, teacher, size=(20, 31))
    full = [F.interpolate(x, size=(20, 31), mode="bilinear", align_corners=False) for x in (student, teacher)]
    torch.testing.assert_close(value, unbiased_distillation(*full))
    assert not torch.isclose(value, unbiased_distillation(student, teacher))


def test_distillation_brings_maps_of_two_sizes_together() -> None:
    student, teacher = draw(1, 5, 4, 4), draw(1, 3, 2, 2, seed=1)
    enlarged = F.interpolate(teacher, size=(4, 4), mode="bilinear", align_corners=False)
    torch.testing.assert_close(
        unbiased_distillation(student, teacher), unbiased_distillation(student, enlarged)
    )


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64])
@pytest.mark.parametrize("name", ["ce", "unbiased"])
def test_labels_of_any_integer_type_are_read_and_left_alone(name: str, dtype: torch.dtype) -> None:
    labels = torch.tensor([[[0, 1], [2, 255]]], dtype=dtype)
    kept = labels.clone()
    value = supervised(name, logs(1, 2, 5), labels)
    assert torch.equal(labels, kept)
    torch.testing.assert_close(value, supervised(name, logs(1, 2, 5), labels.long()))
    assert value > 0


# Poor batches


@pytest.mark.parametrize("name", ["ce", "unbiased"])
def test_all_void_is_zero_with_zero_gradients(name: str) -> None:
    logits = draw(2, 4, 2, 2, scale=50).requires_grad_()
    value = supervised(name, logits, torch.full((2, 8, 8), 255))
    value.backward()
    assert value.item() == 0
    assert torch.equal(logits.grad, torch.zeros_like(logits))


@pytest.mark.parametrize("name", ["ce", "unbiased"])
def test_all_background_is_finite_and_raises_background(name: str) -> None:
    logits = draw(2, 4, 2, 2).requires_grad_()
    value = supervised(name, logits, torch.zeros(2, 8, 8, dtype=torch.int64))
    value.backward()
    assert torch.isfinite(value) and value > 0
    assert (
        torch.isfinite(logits.grad).all() and (logits.grad[:, 0] < 0).all() and (logits.grad[:, 3] > 0).all()
    )


@pytest.mark.parametrize("name", ["ce", "unbiased"])
def test_object_of_one_pixel_is_felt_at_its_place_alone(name: str) -> None:
    labels = torch.zeros(1, 8, 8, dtype=torch.int64)
    labels[0, 5, 6] = 3
    logits = torch.zeros(1, 4, 8, 8, requires_grad=True)
    supervised(name, logits, labels).backward()
    assert (logits.grad[0, 3] < 0).nonzero().tolist() == [[5, 6]]
    assert logits.grad[0, 3, 5, 6].item() == pytest.approx(-0.75 / 64)


# Half precision and large logits


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", ["ce", "unbiased"])
@pytest.mark.parametrize("size", [(8, 8), (4, 4)])
def test_supervised_losses_take_half_precision(name: str, dtype: torch.dtype, size: tuple[int, int]) -> None:
    labels = torch.randint(0, 4, (2, *size), generator=torch.Generator().manual_seed(3))
    logits = draw(2, 4, 4, 4, scale=25).clamp(-50, 50).to(dtype).requires_grad_()
    value = supervised(name, logits, labels)
    value.backward()
    assert value.dtype == torch.float32 and logits.grad.dtype == dtype
    assert torch.isfinite(logits.grad).all() and logits.grad.abs().sum() > 0
    exact = supervised(name, logits.detach().double(), labels)
    assert value.item() == pytest.approx(exact.item(), rel=1e-5)


@pytest.mark.parametrize("dtype", HALVES)
def test_distillation_takes_half_precision(dtype: torch.dtype) -> None:
    student = draw(2, 6, 4, 4, scale=25).clamp(-50, 50).to(dtype).requires_grad_()
    teacher = draw(2, 4, 4, 4, seed=1, scale=25).clamp(-50, 50).to(dtype)
    value = unbiased_distillation(student, teacher, background_balance(teacher), (16, 16))
    value.backward()
    assert torch.isfinite(value) and torch.isfinite(student.grad).all() and student.grad.abs().sum() > 0
    exact = unbiased_distillation(
        student.detach().double(), teacher.double(), background_balance(teacher.double()), (16, 16)
    )
    assert value.item() == pytest.approx(exact.item(), rel=1e-4)


@pytest.mark.parametrize("dtype", [*HALVES, torch.float32])
@pytest.mark.parametrize("size", [50, 512])
def test_sure_and_wrong_costs_what_it_should(dtype: torch.dtype, size: int) -> None:
    """The loss is the gap between logits, not infinity and not a floor under a probability."""

    def logits(*signs: int) -> Tensor:
        return (size * torch.tensor(signs)).to(dtype).view(1, -1, 1, 1)

    background, new = torch.tensor([[[0]]]), torch.tensor([[[2]]])
    assert cross_entropy(logits(1, -1, -1), new).item() == pytest.approx(2 * size)
    assert unbiased_cross_entropy(logits(1, -1, -1), new, 2).item() == pytest.approx(2 * size)
    assert unbiased_cross_entropy(logits(-1, -1, 1), background, 2).item() == pytest.approx(2 * size - log(2))
    assert unbiased_cross_entropy(logits(1, 1, -1), background, 2).item() == pytest.approx(0, abs=1e-6)
    distilled = unbiased_distillation(logits(-1, 1, -1), logits(1, -1))
    assert distilled.item() == pytest.approx((2 * size - log(2)) / 2)


@pytest.mark.parametrize("dtype", HALVES)
def test_upsample_widens_half_precision(dtype: torch.dtype) -> None:
    assert upsample(torch.ones(1, 2, 3, 3, dtype=dtype), (3, 3)).dtype == torch.float32
    assert upsample(torch.ones(1, 2, 3, 3, dtype=dtype), (6, 6)).dtype == torch.float32
    assert upsample(torch.ones(1, 2, 3, 3, dtype=torch.float64), (6, 6)).dtype == torch.float64


def test_upsample_leaves_corners_unaligned() -> None:
    row = torch.tensor([0.0, 1.0]).view(1, 1, 1, 2)
    assert upsample(row, (1, 4)).flatten().tolist() == [0, 0.25, 0.75, 1]  # aligned corners: 0, 1/3, 2/3, 1
