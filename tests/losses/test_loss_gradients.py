"""Numerical gradients of every loss, in float64."""

import inspect
from collections.abc import Callable
from functools import partial
from itertools import cycle, product

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

import segue.losses
from segue.losses import (
    attend,
    attentive_distance,
    background_balance,
    binary_cross_entropy,
    binary_distillation,
    channel_attention,
    cross_entropy,
    distillation,
    distilled_binary_cross_entropy,
    distilled_cross_entropy,
    features,
    incremental_losses,
    local_pod,
    spatial_attention,
    unbiased_cross_entropy,
    unbiased_distillation,
    upsample,
    wide,
)
from segue.losses.prototypes import LEAST_SUM, attraction, repulsion, sparsity

TRACKERS = {"Fisher", "PathIntegral", "RiemannianWalk"}
"""no functions: the gradient of their penalty is checked in test_reference.py"""
LABELS = torch.tensor([[[0, 1, 2], [3, 255, 0]], [[3, 3, 1], [255, 2, 0]]])
CLASS_WEIGHTS = torch.tensor([0.5, 2.0, 1.0, 3.0], dtype=torch.float64)
IMAGE_WEIGHTS = torch.tensor([0.5, 2.0], dtype=torch.float64)


def leaf(*shape: int, seed: int = 0) -> Tensor:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return values.requires_grad_()


OLD = leaf(2, 3, 2, 2, seed=1).detach()
SMALL_OLD = leaf(2, 3, 1, 2, seed=1).detach()
"""the teacher's logits are targets: no gradient flows to them"""
NEW_LABELS = torch.tensor([[[0, 1, 2, 4], [3, 255, 0, 4]], [[3, 3, 1, 0], [255, 2, 0, 0]]])

CASES: dict[str, list[tuple[Callable[..., Tensor], tuple[Tensor, ...]]]] = {
    "upsample": [(lambda x: upsample(x, (5, 3)), (leaf(1, 2, 2, 2),))],
    "wide": [(wide, (leaf(1, 2),))],
    "cross_entropy": [
        (lambda x: cross_entropy(x, LABELS), (leaf(2, 4, 2, 3),)),
        (lambda x: cross_entropy(x, LABELS), (leaf(2, 4, 1, 2),)),
        (lambda x: cross_entropy(x, LABELS, CLASS_WEIGHTS), (leaf(2, 4, 1, 2),)),
        (lambda x: cross_entropy(x, LABELS, image_weight_B=IMAGE_WEIGHTS), (leaf(2, 4, 2, 3),)),
        (lambda x: cross_entropy(x, LABELS, CLASS_WEIGHTS, IMAGE_WEIGHTS), (leaf(2, 4, 1, 2),)),
    ],
    "binary_cross_entropy": [
        (lambda x: binary_cross_entropy(x, LABELS), (leaf(2, 4, 2, 3),)),
        (lambda x: binary_cross_entropy(x, LABELS), (leaf(2, 4, 1, 2),)),
    ],
    "distillation": [
        (lambda x: distillation(x, OLD), (leaf(2, 5, 2, 2),)),
        (lambda x: distillation(x, SMALL_OLD, size=(3, 4)), (leaf(2, 5, 2, 2),)),
    ],
    "binary_distillation": [
        (lambda x: binary_distillation(x, OLD), (leaf(2, 5, 2, 2),)),
        (lambda x: binary_distillation(x, SMALL_OLD, size=(3, 4)), (leaf(2, 5, 2, 2),)),
    ],
    "unbiased_cross_entropy": [
        (lambda x: unbiased_cross_entropy(x, LABELS, 2), (leaf(2, 4, 2, 3),)),
        (lambda x: unbiased_cross_entropy(x, LABELS, 3), (leaf(2, 4, 1, 2),)),
    ],
    "unbiased_distillation": [
        (lambda x: unbiased_distillation(x, OLD), (leaf(2, 5, 2, 2),)),
        (lambda x: unbiased_distillation(x, SMALL_OLD, IMAGE_WEIGHTS, (3, 4)), (leaf(2, 5, 2, 2),)),
    ],
    "incremental_losses": [
        (lambda x: incremental_losses(x, OLD, NEW_LABELS, 3), (leaf(2, 5, 2, 2),)),
        (lambda x: incremental_losses(x, SMALL_OLD, NEW_LABELS, 3, IMAGE_WEIGHTS), (leaf(2, 5, 1, 2),)),
    ],
    "distilled_cross_entropy": [
        (lambda x: distilled_cross_entropy(x, OLD, NEW_LABELS), (leaf(2, 5, 2, 2),)),
    ],
    "distilled_binary_cross_entropy": [
        (lambda x: distilled_binary_cross_entropy(x, OLD, NEW_LABELS), (leaf(2, 5, 2, 2),)),
    ],
    "background_balance": [
        (lambda x: background_balance(x, "logit"), (leaf(2, 3, 2, 2),)),
        (lambda x: background_balance(x, "ratio"), (leaf(2, 3, 2, 2),)),
        (lambda x: background_balance(x, "literal"), (leaf(2, 3, 2, 2),)),
    ],
    "channel_attention": [(channel_attention, (leaf(2, 3, 2, 2), leaf(4, 3, seed=1), leaf(3, 4, seed=2)))],
    "spatial_attention": [(spatial_attention, (leaf(2, 3, 2, 2),))],
    "attend": [
        (
            lambda m, s, channel=channel, spatial=spatial, form=form: attend(
                m, s.sigmoid() if channel else None, spatial, form, detach=False
            ),
            (leaf(2, 3, 2, 2), leaf(2, 3, 1, 1, seed=1)),
        )
        for channel, spatial, form in product((True, False), (True, False), ("product", "printed"))
    ],
    "attentive_distance": [
        (
            partial(attentive_distance, norm=norm, unit_energy=unit_energy),
            (leaf(2, 3, 2, 2), leaf(2, 3, 2, 2, seed=1)),
        )
        for norm, unit_energy in product(("teacher", "map", "mean"), (True, False))
    ],
    "local_pod": [
        (
            lambda old_z, old_logits, z, logits, scales=scales: local_pod(
                [old_z, old_logits], [z, logits], 3, 2, scales=scales
            ),
            (leaf(B, 1, 4, 5), leaf(B, 3, 1, 2, seed=1), leaf(B, 1, 4, 5, seed=2), leaf(B, 5, 1, 2, seed=3)),
        )
        for B, scales in ((2, (1,)), (1, (1, 2, 4)))
    ],
}


def test_every_loss_is_checked() -> None:
    names = set(segue.losses.__all__) - {"labels_of_map", "finest"}  # labels and formats have no gradient
    assert set(CASES) == {name for name in names if inspect.isfunction(getattr(segue.losses, name))}
    assert names - set(CASES) == TRACKERS


@pytest.mark.parametrize(
    ("name", "number"), [(name, number) for name, cases in CASES.items() for number in range(len(cases))]
)
def test_gradient(name: str, number: int) -> None:
    function, inputs = CASES[name][number]
    assert gradcheck(function, inputs)


def test_gradient_of_constraints_by_class() -> None:
    z = leaf(2, 3, 2, 3)
    known = torch.tensor([True, True, True, False])
    assert gradcheck(lambda z, prototypes: attraction(z, LABELS, prototypes, known), (z, leaf(4, 3, seed=1)))
    assert gradcheck(lambda z: repulsion(z, LABELS, 4), (z,))


def test_gradient_of_sparsity_with_the_largest_features_held() -> None:
    """A third image has the largest feature of every class; sums of a place lie around the floor."""
    largest = torch.full((1, 3, 2, 3), 4.0, dtype=torch.float64)
    labels = torch.cat([LABELS, torch.tensor([[[0, 1, 2], [3, 3, 3]]])])
    z = (3 * leaf(2, 3, 2, 3)).detach().clamp_max(3.9).requires_grad_()
    sums = (z.detach().relu() / 4).sum(1)[LABELS != 255]
    assert (sums < LEAST_SUM - 0.1).any() and (sums > LEAST_SUM + 0.1).any()
    assert gradcheck(lambda z: sparsity(torch.cat([z, largest]), labels, 4), (z,))


@pytest.mark.parametrize("form", ["product", "printed"])
@pytest.mark.parametrize("channel", [True, False])
def test_gradient_with_the_energy_held(form: str, channel: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A detached energy is a weight without gradient: it is held while the inputs move."""

    def function(m: Tensor, s: Tensor) -> Tensor:
        return attend(m, s if channel else None, form=form, detach=True)

    inputs = leaf(2, 3, 2, 2), leaf(2, 3, 1, 1, seed=1)
    hold_spatial_attention(function, inputs, monkeypatch)
    assert gradcheck(function, inputs)


@pytest.mark.parametrize("norm", ["teacher", "map", "mean"])
@pytest.mark.parametrize("form", ["product", "printed"])
@pytest.mark.parametrize("detach", [True, False])
def test_gradient_of_a_whole_term(
    norm: str, form: str, detach: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From both maps and from the excitation to one term of L_AD."""

    def function(new: Tensor, old: Tensor, squeeze: Tensor, excite: Tensor) -> Tensor:
        attended = [
            attend(m, channel_attention(m, squeeze, excite), form=form, detach=detach) for m in (new, old)
        ]
        return attentive_distance(*attended, norm, unit_energy=form == "product")

    inputs = leaf(2, 3, 2, 2), leaf(2, 3, 2, 2, seed=1), leaf(4, 3, seed=2), leaf(3, 4, seed=3)
    if detach:
        hold_spatial_attention(function, inputs, monkeypatch)
    assert gradcheck(function, inputs)


def hold_spatial_attention(
    function: Callable[..., Tensor], inputs: tuple[Tensor, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From now on `spatial_attention` gives, call by call, what it gives for these inputs."""
    factors: list[Tensor] = []

    def note(m: Tensor) -> Tensor:
        factors.append(spatial_attention(m))
        return factors[-1]

    monkeypatch.setattr(features, "spatial_attention", note)
    function(*inputs)
    assert factors and not any(factor.requires_grad for factor in factors)
    held = cycle(factors)
    monkeypatch.setattr(features, "spatial_attention", lambda _: next(held))
