"""Features of old classes that are imagined from the teacher alone: nothing is kept between steps.

A step shows new classes only in their own surroundings, and nothing in it says that they are not to be seen
elsewhere. But the teacher's last norm still tells how features were spread when it was trained, and its
classifier where the classes are: for Gaussians of one covariance S the rows are w_c = S^-1 m_c, so a class
lies at m_0 + S (w_c - w_0). Features are drawn there, and the teacher's answers are their targets. How
channels go together is taken from the teacher's features of the step's own images.

Shapes: B batch, F channels of the head's map h, h x w, N places, M features that are drawn, O old channels.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from segue.core.scenario import Step
from segue.data.batches import Batch
from segue.data.transfer import sent
from segue.losses import finest, labels_of_map, wide
from segue.losses.processes import sum_over_processes
from segue.models.head import SLOPE
from segue.models.segmenter import Teacher

TOGETHER = 0.9
"""share of the channels' correlations that is believed: the images of a step are few"""
LEAST_VARIANCE = 1e-9


class Imagined:
    """Gaussians before the head's last activation; made anew from the teacher when a step begins."""

    def __init__(self, per_class: int, background: int) -> None:
        self.per_class, self.background = per_class, background

    @torch.no_grad()
    def begin(self, teacher: Teacher, norm: nn.BatchNorm2d, batches: Iterable[Batch], step: Step) -> None:
        """`norm` is the last one before h, as the step begins: its shift and scale are mean and deviation of
        the features that it was trained with."""
        self.teacher = teacher.model.classifier
        self.mean_F, self.deviation_F = wide(norm.bias.detach().clone()), wide(norm.weight.detach().abs())
        width = len(self.mean_F)
        kind = finest(self.mean_F.device)
        sums = torch.zeros(width + 1, width + 1, dtype=kind, device=self.mean_F.device)
        for batch in batches:
            h_BFhw = teacher(batch.images).features["h"]
            there_Bhw = labels_of_map(batch.labels, h_BFhw) < step.num_old
            x_NF = before_activation(h_BFhw.movedim(1, -1)[there_Bhw].to(kind))
            x_NE = torch.cat([x_NF, torch.ones_like(x_NF[:, :1])], dim=1)
            sums += x_NE.mT @ x_NE
        correlation_FF = TOGETHER * correlations(sum_over_processes(sums))
        correlation_FF.fill_diagonal_(1 + 1e-4)
        self.root_FF = torch.linalg.cholesky(correlation_FF).to(self.mean_F.dtype)
        rows_OF = torch.cat([part.weight.flatten(1) for part in self.teacher.parts]).to(self.mean_F.dtype)
        counts = torch.tensor([self.background] + [self.per_class] * (len(rows_OF) - 1))
        self.meant_M = torch.repeat_interleave(counts).to(self.mean_F.device)
        # S (w_c - w_0), in units of the channels' deviations
        self.shift_OF = (rows_OF - rows_OF[:1]) * self.deviation_F @ self.root_FF @ self.root_FF.mT

    @torch.no_grad()
    def draw(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Features, M x F, and what the teacher says of them, M x O."""
        shape = len(self.meant_M), len(self.mean_F)
        noise_MF = sent(torch.randn(shape, generator=generator).to(self.mean_F.dtype), self.mean_F.device)
        x_MF = self.mean_F + self.deviation_F * (noise_MF @ self.root_FF.mT + self.shift_OF[self.meant_M])
        h_MF = torch.where(x_MF > 0, x_MF, SLOPE * x_MF)
        return h_MF, wide(self.teacher.at_places(h_MF)).softmax(1)


def before_activation(h: Tensor) -> Tensor:
    """What a leaky ReLU has made h of."""
    return torch.where(h > 0, h, h / SLOPE)


def correlations(sums_EE: Tensor) -> Tensor:
    """Of channels, from the sums of products of features with a 1 behind them; 0 where nothing varies."""
    count, mean_F = sums_EE[-1, -1].clamp_min(1), sums_EE[-1, :-1] / sums_EE[-1, -1].clamp_min(1)
    covariance_FF = sums_EE[:-1, :-1] / count - torch.outer(mean_F, mean_F)
    deviation_F = covariance_FF.diagonal().clamp_min(LEAST_VARIANCE).sqrt()
    return (covariance_FF / torch.outer(deviation_F, deviation_F)).clamp(-1, 1)
