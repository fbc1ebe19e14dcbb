"""A confusion matrix over the test images of a step."""

from __future__ import annotations

import numpy as np
import torch

from segue.core.classes import IGNORE
from segue.data.steps import Batches
from segue.engine.progress import Bar
from segue.engine.runtime import autocast
from segue.methods.base import Method


@torch.inference_mode()
def evaluate(
    method: Method, batches: Batches, channels: int, precision: str = "fp32", bar: Bar | None = None
) -> np.ndarray:
    """Integer confusion matrix (rows truth, columns prediction); ignored pixels are not counted."""
    method.eval()
    confusion = torch.zeros(channels * channels, dtype=torch.int64, device=batches.device)
    done = 0
    for batch in batches:
        with autocast(batches.device, precision):
            predicted = method.predict(batch.images).argmax(1)
        valid = batch.labels != IGNORE
        confusion += torch.bincount(
            batch.labels[valid] * channels + predicted[valid], minlength=channels * channels
        )
        done += len(batch)
        if bar is not None:
            bar.update(done, "images")
    return confusion.view(channels, channels).cpu().numpy()
