"""Confusion matrices over the test images of a step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from segue.core.classes import IGNORE
from segue.core.progress import Bar
from segue.data.batches import Batches
from segue.engine.device import autocast
from segue.engine.image_tally import ImageTally
from segue.losses.processes import sum_over_processes
from segue.methods.base import Method
from segue.models._speed.frozen import known_maps
from segue.models.classifier import close_background


def evaluate(
    method: Method,
    batches: Batches,
    channels: int,
    precision: str = "fp32",
    bar: Bar | None = None,
    closed: bool = False,
    tally: ImageTally | None = None,
) -> np.ndarray:
    """Integer confusion matrix (rows truth, columns prediction); ignored pixels are not counted.

    `tally` counts every image by itself, too.
    """
    name = next(iter(method.predictors()))
    return evaluate_by(method, (name,), batches, channels, precision, bar, closed, tally)[name]


@torch.inference_mode()
def evaluate_by(
    method: Method,
    strategies: Sequence[str],
    batches: Batches,
    channels: int,
    precision: str = "fp32",
    bar: Bar | None = None,
    closed: bool = False,
    tally: ImageTally | None = None,
) -> dict[str, np.ndarray]:
    """A confusion matrix for each way to predict, all in one pass over the images of all processes.

    `closed`: no pixel is called background.
    """
    method.eval()
    confusions = {
        name: torch.zeros(channels * channels, dtype=torch.int64, device=batches.device)
        for name in strategies
    }
    done, predictors = 0, method.predictors()
    for batch in batches:
        with autocast(batches.device, precision), known_maps(batch.images, batch.frozen):
            logits = {name: predictors[name](batch.images) for name in strategies}
        valid = batch.labels != IGNORE
        truth = batch.labels[valid] * channels
        for name, confusion in confusions.items():
            scores = close_background(logits[name]) if closed else logits[name]
            predicted = scores.max(1).indices  # argmax takes four times as long on a CPU
            confusion += torch.bincount(truth + predicted[valid], minlength=channels * channels)
            if tally is not None:
                tally.add(batch, predicted)
        done += batch.global_size
        if bar is not None:
            bar.update(done, "images")
    return {
        name: sum_over_processes(counts).view(channels, channels).cpu().numpy()
        for name, counts in confusions.items()
    }
