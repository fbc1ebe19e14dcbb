"""Plain and binary losses of the baselines, and weights of classes and images: by hand, poor inputs."""

from collections.abc import Callable
from math import log

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from segue.losses import binary_cross_entropy, binary_distillation, cross_entropy, distillation
from segue.losses.pixel import class_balance

HALVES = [torch.float16, torch.bfloat16]
LABELS = torch.tensor([[[0, 1], [1, 255]]])
WEIGHTED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "binary": binary_cross_entropy,
    "weighted": lambda logits, labels: cross_entropy(
        logits, labels, torch.arange(1, logits.shape[1] + 1).to(wide(logits)), torch.tensor([0.5, 2.0])
    ),
}
DISTILLED = {"distillation": distillation, "binary distillation": binary_distillation}


def wide(logits: Tensor) -> torch.dtype:
    return torch.float64 if logits.dtype == torch.float64 else torch.float32


def logs(*weights: float) -> Tensor:
    """Logits w with exp(w) as given, the same at all 2 x 2 pixels: sigmoid w / (1 + w)."""
    return torch.tensor(weights, dtype=torch.float64).log().view(1, -1, 1, 1).expand(1, -1, 2, 2)


def draw(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def draw_labels(*shape: int) -> Tensor:
    labels = torch.randint(0, 4, shape, generator=torch.Generator().manual_seed(7))
    labels[0, 0] = 255
    return labels


# By hand


def test_class_weights_scale_the_pixels_of_their_class() -> None:
    # p = 1/4, 3/4; one pixel of class 0, two of class 1, one void that counts in the mean
    value = cross_entropy(logs(1, 3), LABELS, torch.tensor([2.0, 0.5], dtype=torch.float64))
    assert value.item() == pytest.approx((2 * log(4) + 0.5 * 2 * log(4 / 3)) / 4, abs=1e-12)


def test_image_weights_scale_their_image_without_changing_the_mean() -> None:
    logits, labels = torch.cat([logs(1, 3), logs(2, 2)]), torch.cat([LABELS, LABELS * 0])
    alone = [log(4) + 2 * log(4 / 3), 4 * log(2)]
    value = cross_entropy(logits, labels, image_weight_B=torch.tensor([0.5, 0.0]))
    assert value.item() == pytest.approx(0.5 * alone[0] / 8, abs=1e-12)
    value = cross_entropy(logits, labels, image_weight_B=torch.tensor([0.5, 3.0]))
    assert value.item() == pytest.approx((0.5 * alone[0] + 3 * alone[1]) / 8, abs=1e-12)
    both = cross_entropy(logits, labels, torch.tensor([2.0, 0.5]).double(), torch.tensor([0.5, 3.0]))
    expected = 0.5 * (2 * log(4) + log(4 / 3)) + 3 * 2 * alone[1]
    assert both.item() == pytest.approx(expected / 8, abs=1e-12)


def test_weights_of_one_change_nothing() -> None:
    logits, labels = draw(2, 4, 5, 5), draw_labels(2, 5, 5)
    plain = cross_entropy(logits, labels)
    torch.testing.assert_close(cross_entropy(logits, labels, torch.ones(4).double()), plain)
    torch.testing.assert_close(cross_entropy(logits, labels, image_weight_B=torch.ones(2)), plain)


def test_binary_cross_entropy_sums_over_channels_and_counts_void_pixels_in_the_mean() -> None:
    # probabilities 1/2 and 3/4: label 0 costs log 2 + log 4, label 1 twice log 2 + log 4/3, void nothing
    value = binary_cross_entropy(logs(1, 3), LABELS)
    assert value.item() == pytest.approx((log(2) + log(4) + 2 * (log(2) + log(4 / 3))) / 4, abs=1e-12)


def test_distillation_compares_old_channels_among_themselves() -> None:
    # teacher 1/4, 3/4; student 1/5, 4/5 of its old channels, whatever the new one says; by 2 channels
    value = distillation(logs(1, 4, 95), logs(1, 3))
    assert value.item() == pytest.approx(-(log(1 / 5) / 4 + 3 * log(4 / 5) / 4) / 2, abs=1e-12)
    torch.testing.assert_close(value, distillation(logs(1, 4), logs(1, 3)))


def test_binary_distillation_is_a_mean_over_old_channels() -> None:
    # teacher 1/2, 3/4; student 3/4, 1/2: cross-entropies of two coins
    value = binary_distillation(logs(3, 1, 95), logs(1, 3))
    coins = -(log(3 / 4) + log(1 / 4)) / 2, log(2)
    assert value.item() == pytest.approx(sum(coins) / 2, abs=1e-12)


@pytest.mark.parametrize("name", DISTILLED)
def test_distillation_is_a_mean_over_pixels_and_images(name: str) -> None:
    student, teacher = draw(2, 5, 2, 3), draw(2, 3, 2, 3, seed=1)
    alone = [
        DISTILLED[name](
            student[b : b + 1, :, y : y + 1, x : x + 1], teacher[b : b + 1, :, y : y + 1, x : x + 1]
        )
        for b in range(2)
        for y in range(2)
        for x in range(3)
    ]
    torch.testing.assert_close(DISTILLED[name](student, teacher), torch.stack(alone).mean())


@pytest.mark.parametrize("name", DISTILLED)
def test_distillation_is_least_at_the_teacher_and_leaves_new_channels_alone(name: str) -> None:
    teacher = draw(2, 3, 2, 2, seed=1)
    student = torch.cat([teacher, draw(2, 2, 2, 2)], dim=1).requires_grad_()
    (gradient,) = torch.autograd.grad(DISTILLED[name](student, teacher), student)
    assert gradient.abs().max() < 1e-12
    (gradient,) = torch.autograd.grad(DISTILLED[name](2 * student, teacher), student)
    assert gradient[:, :3].abs().max() > 1e-3 and torch.equal(
        gradient[:, 3:], torch.zeros(2, 2, 2, 2).double()
    )


# Balance of classes


def test_balance_by_hand() -> None:
    labels = torch.tensor([[[0, 0, 0, 0], [2, 255, 255, 255]]])
    weights = class_balance(labels, 3, 0.5)
    # 1/2 and 1 by frequency, in all 4/2 + 1 = 3 for 5 pixels
    torch.testing.assert_close(weights[[0, 2]], torch.tensor([5 / 6, 5 / 3]))


@pytest.mark.parametrize("exponent", [0.0, 0.3, 0.5, 1.0])
def test_a_pixels_weight_is_one_on_average(exponent: float) -> None:
    labels = torch.tensor([0] * 90 + [1] * 9 + [3] + [255] * 20).view(2, 6, 10)
    weights = class_balance(labels, 5, exponent)
    assert weights.shape == (5,)
    assert weights[labels[labels != 255]].mean().item() == pytest.approx(1.0)
    assert weights[0] <= weights[1] <= weights[3] and (weights[0] < weights[3]) == (exponent > 0)


def test_balance_goes_from_none_to_equal_totals() -> None:
    labels = torch.tensor([0] * 90 + [1] * 9 + [3]).view(1, 10, 10)
    present, counts = torch.tensor([0, 1, 3]), torch.tensor([90.0, 9.0, 1.0])
    torch.testing.assert_close(class_balance(labels, 4, 0.0)[present], torch.ones(3))
    totals = class_balance(labels, 4, 1.0)[present] * counts
    torch.testing.assert_close(totals, torch.full((3,), 100 / 3))


def test_balance_of_nothing_but_void_is_finite_and_weighs_nothing() -> None:
    labels = torch.full((2, 3, 3), 255, dtype=torch.uint8)
    weights = class_balance(labels, 4, 0.5)
    assert torch.isfinite(weights).all()
    logits = draw(2, 4, 3, 3).float().requires_grad_()
    value = cross_entropy(logits, labels, weights)
    value.backward()
    assert value.item() == 0 and torch.equal(logits.grad, torch.zeros_like(logits))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64])
def test_balance_reads_labels_of_any_integer_type(dtype: torch.dtype) -> None:
    assert class_balance(LABELS.to(dtype), 2, 1.0).tolist() == pytest.approx([1.5, 0.75])


# Poor batches, low resolution, half precision, large logits


@pytest.mark.parametrize("name", WEIGHTED)
def test_all_void_is_zero_with_zero_gradients(name: str) -> None:
    logits = draw(2, 4, 2, 2, scale=50).requires_grad_()
    value = WEIGHTED[name](logits, torch.full((2, 8, 8), 255))
    value.backward()
    assert value.item() == 0 and torch.equal(logits.grad, torch.zeros_like(logits))


@pytest.mark.parametrize("name", WEIGHTED)
def test_labels_of_any_integer_type_are_read_and_left_alone(name: str) -> None:
    labels, logits = draw_labels(2, 3, 3), draw(2, 4, 3, 3)
    small = labels.to(torch.uint8)
    kept = small.clone()
    torch.testing.assert_close(WEIGHTED[name](logits, small), WEIGHTED[name](logits, labels))
    assert torch.equal(small, kept)


@pytest.mark.parametrize("name", WEIGHTED)
def test_low_resolution_logits_equal_interpolation_and_loss(name: str) -> None:
    low, labels = draw(2, 4, 3, 5), draw_labels(2, 24, 37)
    full = F.interpolate(low, size=(24, 37), mode="bilinear", align_corners=False)
    torch.testing.assert_close(WEIGHTED[name](low, labels), WEIGHTED[name](full, labels))
    blocks = F.interpolate(low, size=(24, 37), mode="nearest")
    assert not torch.isclose(WEIGHTED[name](low, labels), WEIGHTED[name](blocks, labels))


@pytest.mark.parametrize("name", DISTILLED)
def test_low_resolution_distillation_equals_interpolation_and_loss(name: str) -> None:
    loss, student, teacher = DISTILLED[name], draw(2, 5, 3, 4, scale=3), draw(2, 3, 2, 3, seed=1, scale=3)
    full = [F.interpolate(x, size=(20, 31), mode="bilinear", align_corners=False) for x in (student, teacher)]
    torch.testing.assert_close(loss(student, teacher, size=(20, 31)), loss(*full))
    assert not torch.isclose(loss(student, teacher, size=(20, 31)), loss(student, teacher))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", WEIGHTED)
@pytest.mark.parametrize("size", [(8, 8), (4, 4)])
def test_supervised_losses_take_half_precision(name: str, dtype: torch.dtype, size: tuple[int, int]) -> None:
    logits, labels = draw(2, 4, 4, 4, scale=25).to(dtype).requires_grad_(), draw_labels(2, *size)
    value = WEIGHTED[name](logits, labels)
    value.backward()
    assert value.dtype == torch.float32 and torch.isfinite(logits.grad).all() and logits.grad.abs().sum() > 0
    assert value.item() == pytest.approx(WEIGHTED[name](logits.detach().double(), labels).item(), rel=1e-5)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", DISTILLED)
@pytest.mark.parametrize("size", [None, (16, 16)])
def test_distillation_takes_half_precision(
    name: str, dtype: torch.dtype, size: tuple[int, int] | None
) -> None:
    student = draw(2, 6, 4, 4, scale=25).to(dtype).requires_grad_()
    teacher = draw(2, 4, 4, 4, seed=1, scale=25).to(dtype)
    value = DISTILLED[name](student, teacher, size)
    value.backward()
    assert value.dtype == torch.float32 and torch.isfinite(student.grad).all()
    assert student.grad.abs().sum() > 0
    exact = DISTILLED[name](student.detach().double(), teacher.double(), size)
    assert value.item() == pytest.approx(exact.item(), rel=1e-4)


@pytest.mark.parametrize("dtype", [*HALVES, torch.float32])
@pytest.mark.parametrize("size", [50, 512])
def test_sure_and_wrong_costs_what_it_should(dtype: torch.dtype, size: int) -> None:
    def logits(*signs: int) -> Tensor:
        return (size * torch.tensor(signs)).to(dtype).view(1, -1, 1, 1)

    wrong = torch.tensor([[[1]]])
    assert binary_cross_entropy(logits(1, -1, -1), wrong).item() == pytest.approx(2 * size)
    assert binary_cross_entropy(logits(-1, 1, -1), wrong).item() == pytest.approx(0, abs=1e-6)
    assert distillation(logits(1, -1, 1), logits(-1, 1)).item() == pytest.approx(2 * size / 2)
    assert binary_distillation(logits(1, 1, 1), logits(-1, 1)).item() == pytest.approx(size / 2)
