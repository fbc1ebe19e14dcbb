"""gamma of CAF eq. 11 in its three readings: the worked numbers, and images with nothing but one side."""

import pytest
import torch
from torch import Tensor

from segue.losses import background_balance, unbiased_distillation


def pooled(background: float, others: float, channels: int) -> Tensor:
    """Logits whose average over places is the given one, though no place has it."""
    logits = torch.full((1, channels, 2, 2), others, dtype=torch.float64)
    logits[:, 0] = background
    wobble = torch.tensor([[1.0, -1.0], [-2.0, 2.0]], dtype=torch.float64)
    return logits + wobble * torch.linspace(-1, 1, channels, dtype=torch.float64).view(1, -1, 1, 1)


def certain(background: float, channels: int) -> Tensor:
    """Two places whose probabilities of background average to the given one; the others share the rest."""
    low, high = background - 0.2, background + 0.2
    rows = [[p, *[(1 - p) / (channels - 1)] * (channels - 1)] for p in (low, high)]
    return torch.tensor(rows, dtype=torch.float64).log().T.reshape(1, channels, 1, 2)


@pytest.mark.parametrize(
    ("background", "others", "channels", "expected"),
    [(6, -1, 16, 0.014), (4, 0, 16, 0.27), (4, 0, 101, 1.83), (0, 0, 16, 15), (3, 3, 101, 100)],
)
def test_reading_logit(background: float, others: float, channels: int, expected: float) -> None:
    gamma = background_balance(pooled(background, others, channels), "logit")
    assert gamma.shape == (1,) and gamma.item() == pytest.approx(expected, rel=0.03)


def test_reading_logit_of_a_foreground_image_is_large() -> None:
    logits = pooled(-5, -5, 16)
    logits[:, 7] += 12
    assert background_balance(logits, "logit").item() > 1e4


@pytest.mark.parametrize(("background", "channels"), [(0.73, 16), (0.73, 101), (0.3, 21)])
def test_reading_ratio(background: float, channels: int) -> None:
    gamma = background_balance(certain(background, channels), "ratio")
    assert gamma.item() == pytest.approx((1 - background) / background)
    if background == 0.73:
        assert gamma.item() == pytest.approx(0.37, abs=0.005)


@pytest.mark.parametrize(("background", "channels", "expected"), [(0.73, 16, 7.4), (0.3, 101, 75)])
def test_reading_literal(background: float, channels: int, expected: float) -> None:
    gamma = background_balance(certain(background, channels), "literal")
    assert gamma.item() == pytest.approx(expected, rel=0.01)


def test_flat_logits_give_the_number_of_old_classes_in_every_reading() -> None:
    for reading in ("logit", "ratio", "literal"):
        gamma = background_balance(torch.full((2, 16, 3, 3), 0.7), reading)
        torch.testing.assert_close(gamma, torch.full((2,), 15.0))


def test_logit_is_the_default_and_each_image_has_its_own() -> None:
    logits = torch.cat([pooled(4, 0, 16), pooled(6, -1, 16)])
    gamma = background_balance(logits)
    torch.testing.assert_close(gamma, background_balance(logits, "logit"))
    torch.testing.assert_close(gamma, torch.cat([background_balance(image[None]) for image in logits]))
    assert gamma[0] > 10 * gamma[1]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("reading", ["logit", "ratio", "literal"])
@pytest.mark.parametrize("background", [50.0, -50.0])
def test_one_sided_images_stay_finite(dtype: torch.dtype, reading: str, background: float) -> None:
    teacher = torch.full((2, 5, 4, 4), -background, dtype=dtype)
    teacher[:, 0] = background
    gamma = background_balance(teacher, reading)
    assert torch.isfinite(gamma).all() and (gamma >= 0).all()
    assert (gamma > 1).all() if background < 0 else (gamma < 4).all()
    student = torch.zeros(2, 7, 4, 4, requires_grad=True)
    value = unbiased_distillation(student, teacher, gamma)
    value.backward()
    assert torch.isfinite(value) and torch.isfinite(student.grad).all()
