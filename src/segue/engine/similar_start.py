"""NeST: the start of new classifiers is tuned before the step (Xie et al., ECCV 2024), for any method.

The network stays as it is; only the composition of the new rows, their biases and a rescaling of the
background's row are tuned, by the unbiased cross-entropy. Batch norm keeps its statistics meanwhile, where
the authors' code lets them move.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from segue.core.config import OptimConfig
from segue.data.transfer import sent
from segue.engine.optim import set_learning_rate
from segue.losses import labels_of_map, unbiased_cross_entropy, wide
from segue.losses.processes import sum_over_processes, this_process
from segue.losses.similar import as_long_as, composed, shared_signs
from segue.methods.base import Method, StepContext
from segue.models.classifier import GrowingClassifier


class Composition(nn.Module):
    """Rows of new classes from the old ones, with a free bias each, and a rescaled background."""

    def __init__(self, classifier: GrowingClassifier, masks_nOD: Tensor) -> None:
        super().__init__()
        parts = list(classifier.parts)
        self.kernel, self.padding = parts[0].weight.shape[1:], parts[0].padding
        self.register_buffer("rows", torch.cat([part.weight.detach().flatten(1) for part in parts[:-1]]))
        self.register_buffer("old_biases", torch.cat([part.bias.detach() for part in parts[:-1]]))
        self.masks = nn.Parameter(masks_nOD)
        self.shares = nn.Parameter(masks_nOD.sum(2).softmax(1))
        self.biases = nn.Parameter(self.old_biases.new_zeros(len(masks_nOD)))
        self.mask = nn.Parameter(torch.ones_like(self.rows[0]))
        self.scale = nn.Parameter(self.rows.new_ones(()))

    def background(self) -> Tensor:
        return self.scale * self.mask * self.rows[:1]

    def new(self) -> Tensor:
        return composed(self.masks, self.shares, self.rows)

    def forward(self, h_BFhw: Tensor) -> Tensor:
        rows = torch.cat([self.background(), self.rows[1:], self.new()])
        biases = torch.cat([self.old_biases, self.biases])
        return F.conv2d(h_BFhw, rows.unflatten(1, self.kernel), biases, padding=self.padding)

    @torch.no_grad()
    def write(self, classifier: GrowingClassifier) -> None:
        """The tuned rows, brought to the length of the old ones."""
        first, last = classifier.parts[0], classifier.parts[-1]
        background = as_long_as(self.background(), self.rows[:1])
        first.weight[:1] = background.unflatten(1, self.kernel)
        last.weight.copy_(as_long_as(self.new(), self.rows).unflatten(1, self.kernel))
        length = self.biases.norm().clamp_min(1e-12)
        last.bias.copy_(self.biases * (self.old_biases.norm() / length).clamp_max(1.0))


class Features:
    """The head's features of a step's images with their labels, pass after pass.

    The network stays as it is and the images come alike in every pass, so one pass computes them for all
    that follow. If they do not fit into `room` bytes, every pass computes them anew.
    """

    def __init__(self, method: Method, context: StepContext, room: float) -> None:
        self.model, self.context, self.room = method.model, context, room
        self.kept: list[tuple[Tensor, Tensor]] = []

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        if self.kept:
            device = self.context.device
            yield from ((sent(h, device), sent(labels, device).long()) for h, labels in self.kept)
            return
        kept, room = [], self.room
        for batch in self.context.loader:
            with torch.no_grad():
                h_BFhw = self.model.refined(batch.images)
            labels = batch.labels.to(torch.uint8)
            room -= h_BFhw.nbytes + labels.nbytes
            if room >= 0:
                kept.append((h_BFhw.cpu(), labels.cpu()))
            else:
                kept.clear()
            yield h_BFhw, batch.labels
        self.kept = kept


def start_from_similar(
    method: Method, context: StepContext, optim: OptimConfig, epochs: int, room: float
) -> None:
    """Give a grown model's new classifiers the start that is tuned on the step's images.

    `room`: bytes of memory for the features of all images.
    """
    model = method.model
    assert isinstance(model.classifier, GrowingClassifier), "the recipe of another is refused"
    was_training = model.training
    model.eval()
    features = Features(method, context, room)
    composition = Composition(model.classifier, _begin(method, context, features))
    groups = [{"params": list(composition.parameters()), "base_lr": optim.lr_next}]
    optimizer = torch.optim.SGD(groups, lr=optim.lr_next, momentum=optim.momentum)
    batches, done = epochs * len(context.loader), 0
    for _ in range(epochs):
        for h, labels in features:
            set_learning_rate(optimizer, done, batches, optim.poly_power)
            loss = unbiased_cross_entropy(composition(h), labels, context.step.num_old)
            optimizer.zero_grad()
            loss.backward()
            for parameter in composition.parameters():
                parameter.grad = sum_over_processes(parameter.grad) / this_process()[1]
            optimizer.step()
            done += 1
    composition.write(model.classifier)
    model.train(was_training)


@torch.no_grad()
def _begin(method: Method, context: StepContext, features: Features) -> Tensor:
    """The masks M by what the old channels say of the new classes' places: n x O x D."""
    model, step = method.model, context.step
    parts = list(model.classifier.parts)[:-1]
    rows = torch.cat([part.weight.flatten(1) for part in parts])
    new = torch.arange(step.num_old, step.num_channels, device=context.device)
    total, counts = rows.new_zeros(len(new), *rows.shape), rows.new_zeros(len(new))
    kernel, padding = parts[0].kernel_size, parts[0].padding
    for h, labels in features:
        h = wide(h)
        old = torch.cat([part(h) for part in parts], dim=1).softmax(1)
        places = F.unfold(h, kernel, padding=padding).mT.flatten(0, 1)
        belongs = (labels_of_map(labels, h).flatten()[:, None] == new).to(rows.dtype)
        total += shared_signs(places, old.movedim(1, -1).flatten(0, 2), belongs, rows)
        counts += belongs.sum(0)
    counts = sum_over_processes(counts).clamp_min(1)
    return sum_over_processes(total) / counts[:, None, None]
