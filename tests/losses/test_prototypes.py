"""Constraints on features by class: sums against a loop, every term by hand, void, background, nothing."""

from math import exp, sqrt

import pytest
import torch
from torch import Tensor

from segue.losses.prototypes import LEAST_DISTANCE, LEAST_SUM, attraction, class_sums, repulsion, sparsity

ALL = torch.ones(4, dtype=torch.bool)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def draw_labels(*shape: int) -> Tensor:
    labels = torch.randint(0, 4, shape, generator=torch.Generator().manual_seed(1))
    labels[0, 0] = 255
    return labels


def places(*rows: tuple[float, ...]) -> Tensor:
    """Features of one image, a tuple per place: 1 x C x 1 x w."""
    return torch.tensor(rows, dtype=torch.float64).T[None, :, None]


def at(*labels: int) -> Tensor:
    return torch.tensor(labels)[None, None]


# Sums


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64])
def test_sums_are_those_of_a_loop(dtype: torch.dtype) -> None:
    z, labels = draw(3, 5, 4, 6), draw_labels(3, 4, 6)
    sums, counts = torch.zeros(6, 5).double(), torch.zeros(6).double()
    for b in range(3):
        for y in range(4):
            for x in range(6):
                if labels[b, y, x] != 255:
                    sums[labels[b, y, x]] += z[b, :, y, x]
                    counts[labels[b, y, x]] += 1
    found_sums, found_counts = class_sums(z, labels.to(dtype), 6)
    torch.testing.assert_close(found_sums, sums)
    assert torch.equal(found_counts, counts) and counts[4:].sum() == 0 < counts[:4].min()


# Attraction


def test_attraction_by_hand() -> None:
    z = places((1, 3), (5, 3), (0, 0), (7, 7), (9, 9))
    prototypes = torch.tensor([[0.0, 0.0], [1, 1], [2, 0]]).double()
    # class 1: (0 + 4) / 2 and (16 + 4) / 2, a mean of 6; class 2: (4 + 0) / 2; background and void: no part
    assert attraction(z, at(1, 1, 2, 0, 255), prototypes, ALL[:3]).item() == pytest.approx(
        (6 + 2) / 2, abs=1e-12
    )


def test_attraction_is_zero_at_the_prototypes_and_pulls_towards_them() -> None:
    prototypes, labels = draw(4, 5), draw_labels(2, 4, 4)
    z = prototypes[labels.clamp_max(3)].movedim(-1, 1)
    assert attraction(z, labels, prototypes, ALL).item() == 0
    moved = (z + 0.1).requires_grad_()
    (gradient,) = torch.autograd.grad(attraction(moved, labels, prototypes, ALL), moved)
    clustered = ((labels > 0) & (labels != 255))[:, None].expand_as(gradient)
    assert (gradient[clustered] > 0).all() and (gradient[~clustered] == 0).all()


def test_seldom_class_attracts_as_much_as_a_frequent_one() -> None:
    z, prototypes = places(*[(1.0,)] * 9, (2.0,)), torch.zeros(3, 1).double()
    assert attraction(z, at(*[1] * 9, 2), prototypes, ALL[:3]).item() == pytest.approx((1 + 4) / 2)


def test_class_without_a_prototype_does_not_attract() -> None:
    z, prototypes = places((1.0,), (2.0,), (3.0,)), torch.zeros(4, 1).double()
    known = torch.tensor([True, True, False, True])
    assert attraction(z, at(1, 2, 3), prototypes, known).item() == pytest.approx((1 + 9) / 2)
    assert attraction(z, at(2, 2, 255), prototypes, known).item() == 0


# Repulsion


def test_repulsion_by_hand() -> None:
    z = places((0, 0), (2, 2), (4, 5), (50, 50), (70, 70))  # means of class 1: (1, 1), of 3: (4, 5)
    assert repulsion(z, at(1, 1, 3, 0, 255), 5).item() == pytest.approx(1 / 5, abs=1e-12)
    # a third class at distances 1 and sqrt(18)
    three = repulsion(torch.cat([z, places((1, 2))], 3), at(1, 1, 3, 0, 255, 2), 5)
    assert three.item() == pytest.approx((1 / 5 + 1 + 1 / sqrt(18)) / 3, abs=1e-12)


def test_repulsion_pushes_apart() -> None:
    z = places((0.0,), (2.0,)).requires_grad_()
    (gradient,) = torch.autograd.grad(repulsion(z, at(1, 2), 3), z)
    assert gradient.flatten().tolist() == pytest.approx([0.25, -0.25])  # 1 / d^2, up with the distance


@pytest.mark.parametrize("labels", [at(1, 1), at(0, 1), at(0, 0), at(255, 1), at(255, 255)])
def test_one_class_or_none_is_not_repelled(labels: Tensor) -> None:
    z = draw(1, 3, 1, 2).requires_grad_()
    value = repulsion(z, labels, 4)
    (gradient,) = torch.autograd.grad(value, z)
    assert value.item() == 0 and torch.equal(gradient, torch.zeros_like(gradient))


def test_equal_means_are_finite() -> None:
    z = torch.ones(1, 3, 1, 2, requires_grad=True)
    value = repulsion(z, at(1, 2), 3)
    (gradient,) = torch.autograd.grad(value, z)
    assert value.item() == pytest.approx(1 / LEAST_DISTANCE) and torch.isfinite(gradient).all()


# Sparsity


def test_sparsity_by_hand() -> None:
    # class 1 is divided by 4, class 0 (it takes part) by 2; negative features are none; void has no part
    z = places((4, 2, -8), (1, 3, 4), (2, 1, 2), (99, 99, 99))
    expected = [
        (exp(1) + exp(0.5) + exp(0)) / (1 + 0.5),
        (exp(0.25) + exp(0.75) + exp(1)) / (0.25 + 0.75 + 1),
        (exp(1) + exp(0.5) + exp(1)) / 2.5,
    ]
    assert sparsity(z, at(1, 1, 0, 255), 3).item() == pytest.approx(sum(expected) / 3, abs=1e-12)


def test_largest_feature_is_a_scale_and_no_path_for_gradients() -> None:
    z = places((4.0, 3.0)).requires_grad_()
    (gradient,) = torch.autograd.grad(sparsity(z, at(1), 2), z)
    # f = z / 4 with 4 held: (exp(f) sum - exps) / sum^2 / 4
    total, exps = 1.75, exp(1) + exp(0.75)
    expected = [(exp(f) * total - exps) / total**2 / 4 for f in (1, 0.75)]
    assert gradient.flatten().tolist() == pytest.approx(expected)


def test_place_with_hardly_any_activity_does_not_dominate() -> None:
    value = sparsity(places((4, 0), (0.04, 0.02)), at(1, 1), 2)
    expected = [(exp(1) + 1) / 1, (exp(0.01) + exp(0.005)) / LEAST_SUM]
    assert value.item() == pytest.approx(sum(expected) / 2, abs=1e-12)


def test_scale_of_a_class_does_not_count() -> None:
    z, labels = draw(2, 5, 4, 4), draw_labels(2, 4, 4)
    scaled = torch.where((labels == 2)[:, None], 7 * z, z)
    torch.testing.assert_close(sparsity(scaled, labels, 4), sparsity(z, labels, 4))


def test_features_without_activity_are_finite() -> None:
    z = torch.zeros(1, 3, 2, 2, requires_grad=True)
    value = sparsity(z - 1, torch.ones(1, 2, 2, dtype=torch.int64), 2)
    (gradient,) = torch.autograd.grad(value, z)
    assert value.item() == pytest.approx(3 / LEAST_SUM) and torch.equal(gradient, torch.zeros_like(gradient))


# Nothing there


@pytest.mark.parametrize("label", [0, 255])
def test_terms_without_pixels_are_zero_with_zero_gradients(label: int) -> None:
    z, labels = draw(2, 3, 2, 2).requires_grad_(), torch.full((2, 2, 2), label)
    values = [attraction(z, labels, draw(4, 3, seed=1), ALL), repulsion(z, labels, 4)]
    if label == 255:
        values.append(sparsity(z, labels, 4))
        assert not class_sums(z, labels, 4)[0].any() and not class_sums(z, labels, 4)[1].any()
    for value in values:
        (gradient,) = torch.autograd.grad(value, z)
        assert value.item() == 0 and torch.equal(gradient, torch.zeros_like(gradient))
