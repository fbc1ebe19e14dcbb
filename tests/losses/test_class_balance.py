"""Cross-entropies under `balanced_classes`: weights by how seldom classes are, without being handed any."""

import pytest
import torch
from torch import Tensor

from segue.losses import (
    binary_cross_entropy,
    cross_entropy,
    distilled_binary_cross_entropy,
    distilled_cross_entropy,
    incremental_losses,
    unbiased_cross_entropy,
    unbiased_distillation,
)
from segue.losses.balance import EXPONENT, balanced_classes
from segue.losses.pixel import class_balance

LABELS = torch.tensor([0] * 80 + [2] * 12 + [3] * 3 + [255] * 5).view(1, 10, 10)
NUM_OLD = 2


def draw(channels: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(1, channels, 10, 10, generator=generator, dtype=torch.float64)


LOGITS, OLD = draw(4), draw(NUM_OLD, 1)


@pytest.fixture(autouse=True)
def in_float64() -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def test_weights_are_those_of_the_labels_inside_alone() -> None:
    by_hand = cross_entropy(LOGITS, LABELS, class_balance(LABELS, 4, EXPONENT))
    plain = cross_entropy(LOGITS, LABELS)
    with balanced_classes(True):
        torch.testing.assert_close(cross_entropy(LOGITS, LABELS), by_hand)
        with balanced_classes(False):
            assert torch.equal(cross_entropy(LOGITS, LABELS), plain)
    assert torch.equal(cross_entropy(LOGITS, LABELS), plain) and not torch.isclose(plain, by_hand)


def test_weights_of_a_methods_own_win() -> None:
    own = torch.tensor([1.0, 2.0, 3.0, 4.0])
    with balanced_classes(True):
        inside = cross_entropy(LOGITS, LABELS, own)
    assert torch.equal(inside, cross_entropy(LOGITS, LABELS, own))


def test_unbiased_loss_by_hand() -> None:
    """Pixels one by one: their plain losses, weighted by class, over all pixels."""
    alone = torch.stack(
        [
            unbiased_cross_entropy(
                LOGITS[..., row : row + 1, column : column + 1],
                LABELS[:, row : row + 1, column : column + 1],
                NUM_OLD,
            )
            for row in range(10)
            for column in range(10)
        ]
    )
    weights = class_balance(LABELS, 4, EXPONENT)[LABELS.flatten().masked_fill(LABELS.flatten() == 255, 0)]
    with balanced_classes(True):
        value = unbiased_cross_entropy(LOGITS, LABELS, NUM_OLD)
    torch.testing.assert_close(value, (weights * alone).mean())


def test_labels_of_old_classes_are_one_with_background() -> None:
    mixed = LABELS.clone()
    mixed[0, :4] = 1
    with balanced_classes(True):
        values = [unbiased_cross_entropy(LOGITS, labels, NUM_OLD) for labels in (LABELS, mixed)]
        plain = [
            loss(LOGITS, LABELS) for loss in (cross_entropy, lambda *given: unbiased_cross_entropy(*given, 1))
        ]
    torch.testing.assert_close(*values)
    torch.testing.assert_close(*plain)


def test_shared_passes_balance_labels_but_not_distillation() -> None:
    with balanced_classes(True):
        unbiased, distilled = incremental_losses(LOGITS, OLD, LABELS, NUM_OLD)
        torch.testing.assert_close(unbiased, unbiased_cross_entropy(LOGITS, LABELS, NUM_OLD))
        soft = distilled_cross_entropy(LOGITS, OLD, LABELS)
        binary = distilled_binary_cross_entropy(LOGITS, OLD, LABELS)
        torch.testing.assert_close(soft[0], cross_entropy(LOGITS, LABELS))
        torch.testing.assert_close(binary[0], binary_cross_entropy(LOGITS, LABELS))
    torch.testing.assert_close(distilled, unbiased_distillation(LOGITS, OLD, size=(10, 10)))
    for balanced, shared in ((soft, distilled_cross_entropy), (binary, distilled_binary_cross_entropy)):
        plain = shared(LOGITS, OLD, LABELS)
        torch.testing.assert_close(balanced[1], plain[1])
        assert not torch.isclose(balanced[0], plain[0])


def test_gradient_of_the_unbiased_loss() -> None:
    logits = draw(4)[..., :3, :3].clone().requires_grad_()
    labels = torch.tensor([[[0, 0, 2], [0, 1, 3], [255, 0, 2]]])
    with balanced_classes(True):
        assert torch.autograd.gradcheck(lambda x: unbiased_cross_entropy(x, labels, NUM_OLD), logits)
