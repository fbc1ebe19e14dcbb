"""Pictures to compare a file and its model with, where nobody gave any. No torch."""

from __future__ import annotations

import numpy as np

SHAPES = ((1, 3, 192, 256), (2, 3, 161, 99))
"""shapes of the pictures that are compared: multiples of every stride, and a batch of odd sides"""


def picture(shape: tuple[int, int, int, int], seed: int) -> np.ndarray:
    """Patches of colour with noise over them: something between a photo and the worst case."""
    numbers = np.random.default_rng(seed)
    batch, channels, height, width = shape
    patches = numbers.integers(0, 256, (batch, channels, height // 16 + 1, width // 16 + 1))
    coarse = patches.repeat(16, 2).repeat(16, 3)[:, :, :height, :width]
    return np.clip(coarse + numbers.normal(0, 12, shape), 0, 255).astype(np.uint8)
