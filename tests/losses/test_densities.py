"""Densities under mixtures against torch.distributions, and the distance of two models by them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions import Normal

from segue.losses.mixtures import likelihood_distance, log_densities


def mixtures(classes: int = 2, width: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    means = torch.randn(classes, 3, width, generator=generator)
    variances = torch.rand(classes, 3, width, generator=generator) + 0.1
    return means, variances, torch.rand(classes, 3, generator=generator).softmax(1)


def test_densities_are_those_of_normal_distributions() -> None:
    means, variances, shares = mixtures()
    x = torch.randn(5, 4)
    expected = Normal(means, variances.sqrt()).log_prob(x[:, None, None]).sum(3) + shares.log()
    torch.testing.assert_close(log_densities(x, means, variances, shares), expected)


def test_equal_features_have_no_distance_and_no_gradient() -> None:
    h = torch.randn(2, 4, 3, 3, requires_grad=True)
    distance = likelihood_distance(h, h.detach(), torch.ones(2, 3, 3), mixtures())
    distance.backward()
    torch.testing.assert_close(distance.detach(), torch.zeros(()), atol=1e-12, rtol=0)
    torch.testing.assert_close(h.grad, torch.zeros_like(h), atol=1e-12, rtol=0)


def test_distance_is_the_mean_divergence_under_the_weight() -> None:
    h, old, weight, given = torch.randn(1, 4, 1, 2), torch.randn(1, 4, 1, 2), torch.ones(1, 1, 2), mixtures()
    weight[..., 1] = 0
    p, q = ((log_densities(x[0, :, 0, :1].mT, *given).logsumexp(2) / 4).softmax(1) for x in (old, h))
    expected = (p * (p / q).log()).sum()
    torch.testing.assert_close(likelihood_distance(h, old, weight, given), expected)
    assert likelihood_distance(h, old, torch.zeros(1, 1, 2), given) == 0
