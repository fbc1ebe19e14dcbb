"""How much each parameter matters to what has been learned, and the penalty for moving it.

Three trackers, as the MiB code runs them: `Fisher` (EWC, Kirkpatrick et al. 2017), `PathIntegral` (PI, Zenke
et al. 2017), `RiemannianWalk` (RW, Chaudhry et al. 2018). All are fed with the gradients of the task's loss
alone, when these are complete and before the optimiser moves: then every process of a parallel run holds the
same state. The penalty sum_i w_i (theta_i - anchor_i)^2 has its gradient in closed form, so that it never
mixes with the task's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor, nn

Parameters = Mapping[str, Tensor]

NORM_EPS = 1e-8
PATH_EPS = 1e-20
WALK_EPS = 1e-8


def min_max(values: Tensor) -> Tensor:
    """One tensor's values brought to [0, 1]."""
    low, high = values.aminmax()
    return (values - low) / (high - low + NORM_EPS)


class Tensors(nn.Module):
    """Tensors by parameter name, kept as buffers."""

    def __contains__(self, name: str) -> bool:
        return self._key(name) in self._buffers

    def __getitem__(self, name: str) -> Tensor:
        value = self._buffers[self._key(name)]
        assert value is not None
        return value

    def __setitem__(self, name: str, value: Tensor) -> None:
        self.register_buffer(self._key(name), value.detach())

    @staticmethod
    def _key(name: str) -> str:
        return name.replace(".", "/")  # a buffer's name has no dots


class Importance(nn.Module, ABC):
    """Base of the trackers. `begin_step`, then `update` per iteration, then `end_step`."""

    def __init__(self) -> None:
        super().__init__()
        self.anchor, self.weight = Tensors(), Tensors()
        """what the penalty needs: parameters after the step before, and their weight in [0, 1] per term"""

    def begin_step(self, parameters: Parameters, first: bool) -> None:
        """Anchor the parameters where they stand, before new ones are added; none at the first step."""
        if not first:
            for name, value in parameters.items():
                self.anchor[name] = value.clone()
                self.weight[name] = self.normalised(name)

    @abstractmethod
    def grow(self, parameters: Parameters) -> None:
        """Start tracking a step's parameters, old and new."""

    @abstractmethod
    def update(self, parameters: Parameters) -> None:
        """Take in the gradients of one iteration."""

    @abstractmethod
    def normalised(self, name: str) -> Tensor:
        """The weight of a parameter in the next steps' penalty."""

    def end_step(self, parameters: Parameters) -> None:
        """Turn what the step has gathered into importance."""

    def penalty(self, parameters: Parameters) -> Tensor:
        """Weighted squared distance to the anchors; parameters without an anchor are free."""
        terms = [
            (self.weight[name] * (value - self.anchor[name]).square()).sum()
            for name, value in parameters.items()
            if name in self.anchor
        ]
        return torch.stack(terms).sum() if terms else torch.zeros(())

    def add_penalty_gradient(self, parameters: Parameters, factor: float) -> None:
        """Add `factor` times the penalty's gradient to the gradients that are there."""
        for name, value in parameters.items():
            if name in self.anchor and value.grad is not None:
                value.grad.add_(self.weight[name] * (value.detach() - self.anchor[name]), alpha=2 * factor)


class Fisher(Importance):
    """EWC: a running mean of squared gradients, which starts at one."""

    def __init__(self, alpha: float = 0.9) -> None:
        super().__init__()
        self.alpha = alpha
        """share of the newest gradient"""
        self.fisher = Tensors()

    def grow(self, parameters: Parameters) -> None:
        for name, value in parameters.items():
            if name not in self.fisher:
                self.fisher[name] = torch.ones_like(value)

    @torch.no_grad()
    def update(self, parameters: Parameters) -> None:
        finite = _all_finite(parameters)
        for name, _, gradient in _with_gradient(parameters):
            fisher = self.fisher[name]
            # half precision may overflow: the optimiser skips such an iteration, and so does this
            fisher.lerp_(torch.where(finite, gradient.square(), fisher), self.alpha)

    def normalised(self, name: str) -> Tensor:
        return min_max(self.fisher[name])


class PathIntegral(Importance):
    """PI: how much each parameter's way through the step lowered the loss, per squared distance."""

    def __init__(self) -> None:
        super().__init__()
        self.score, self.gain, self.start, self.previous = Tensors(), Tensors(), Tensors(), Tensors()

    def grow(self, parameters: Parameters) -> None:
        for name, value in parameters.items():
            if name not in self.score:
                self.score[name] = torch.zeros_like(value)
            self.gain[name] = torch.zeros_like(value)
            self.start[name] = value.clone()
            self.previous[name] = value.clone()

    @torch.no_grad()
    def update(self, parameters: Parameters) -> None:
        finite = _all_finite(parameters)
        for name, value, gradient in _with_gradient(parameters):
            gain = gradient * (self.previous[name] - value)
            self.gain[name].add_(torch.where(finite, gain, 0.0))
            self.previous[name].copy_(torch.where(finite, value, self.previous[name]))

    @torch.no_grad()
    def end_step(self, parameters: Parameters) -> None:
        for name, value in parameters.items():
            distance = (value - self.start[name]).square()
            self.score[name].add_((self.gain[name] / (distance + PATH_EPS)).clamp_min(0.0))

    def normalised(self, name: str) -> Tensor:
        return min_max(self.score[name])


class RiemannianWalk(Importance):
    """RW: the Fisher information of EWC, and a path score in its metric, taken every few iterations."""

    def __init__(self, alpha: float = 0.9, every: int = 10) -> None:
        super().__init__()
        self.information, self.every, self.iteration = Fisher(alpha), every, 0
        self.score, self.gain, self.previous = Tensors(), Tensors(), Tensors()

    def grow(self, parameters: Parameters) -> None:
        self.information.grow(parameters)
        self.iteration = 0
        for name, value in parameters.items():
            if name not in self.score:
                self.score[name] = torch.zeros_like(value)
            self.gain[name] = torch.zeros_like(value)
            self.previous[name] = value.clone()

    @torch.no_grad()
    def update(self, parameters: Parameters) -> None:
        if self.iteration % self.every == 0:
            finite = _all_finite(parameters)
            for name, value, gradient in _with_gradient(parameters):
                moved = self.previous[name] - value
                energy = 0.5 * self.information.fisher[name] * moved.square() + WALK_EPS
                self.gain[name].add_(torch.where(finite, gradient * moved / energy, 0.0))
                self.previous[name].copy_(torch.where(finite, value, self.previous[name]))
        self.information.update(parameters)
        self.iteration += 1

    @torch.no_grad()
    def end_step(self, parameters: Parameters) -> None:
        """The score of an old parameter is the mean of the step's and the one before."""
        for name in parameters:
            gain, old = self.gain[name].clamp_min(0.0), self.score[name]
            old.copy_(0.5 * (gain + old) if name in self.anchor else gain)

    def normalised(self, name: str) -> Tensor:
        return self.information.normalised(name) + min_max(self.score[name])

    def get_extra_state(self) -> Tensor:
        """The iteration counter, so that a resumed step keeps its rhythm."""
        return torch.tensor(self.iteration)

    def set_extra_state(self, state: Tensor) -> None:
        self.iteration = int(state)


def _with_gradient(parameters: Parameters) -> list[tuple[str, Tensor, Tensor]]:
    """Name, value and gradient of each parameter that has one."""
    return [(name, value, value.grad) for name, value in parameters.items() if value.grad is not None]


def _all_finite(parameters: Parameters) -> Tensor:
    """Whether every gradient is finite, as a tensor: nothing waits for the device."""
    flags = [gradient.isfinite().all() for *_, gradient in _with_gradient(parameters)]
    return torch.stack(flags).all() if flags else torch.tensor(True)
