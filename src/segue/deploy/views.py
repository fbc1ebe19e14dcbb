"""Test-time views: an image mirrored and at several scales, whose probabilities are averaged."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from segue.core.errors import UserError
from segue.data.image_files import BadFile
from segue.data.input_size import MOST_PIXELS
from segue.deploy.predictor import Answer, Predictor, answer_from, resized_rows
from segue.deploy.prepare import resize_pixels

SCALES = (0.25, 4.0)
"""least and largest scale"""


@dataclass(frozen=True)
class Views:
    """How often, and how, an image is looked at."""

    flips: bool = False
    """whether each image is also seen in a mirror"""
    scales: tuple[float, ...] = (1.0,)
    """factors of the size at which an image is seen"""

    def __post_init__(self) -> None:
        low, high = SCALES
        if not self.scales or not all(low <= scale <= high for scale in self.scales):
            raise UserError(f"Scales lie between {low:g} and {high:g}, such as 0.75,1,1.25.")

    @property
    def plain(self) -> bool:
        """One look at the image as it is."""
        return not self.flips and self.scales == (1.0,)

    def probabilities(self, predictor: Predictor, images_BHW3: np.ndarray) -> np.ndarray:
        """The mean over all views, B x K x H x W."""
        if self.plain:
            return predictor.probabilities(images_BHW3)
        size = images_BHW3.shape[1:3]
        total, count = None, 0
        for scale in self.scales:
            height, width = (max(1, round(scale * side)) for side in size)
            scaled = np.stack([resize_pixels(image, height, width) for image in images_BHW3])
            for mirrored in (False, True) if self.flips else (False,):
                found = predictor.probabilities(scaled[:, :, ::-1] if mirrored else scaled)
                found = found[..., ::-1] if mirrored else found
                found = np.stack([resized_rows(one, size, slice(None)) for one in found])
                total, count = found if total is None else total + found, count + 1
        assert total is not None
        return (total / count).astype(np.float32)

    def answer(self, predictor: Predictor, pixels: np.ndarray) -> Answer:
        """An image seen whole: views of the size that the network sees, answered at the image's own size."""
        seen = predictor.images.resized(pixels)
        largest = max(self.scales) ** 2 * seen.shape[0] * seen.shape[1]
        if largest > SCALES[1] * MOST_PIXELS:
            raise BadFile(
                "wrong size",
                f"An image of {pixels.shape[1]} x {pixels.shape[0]} pixels is too large for scale"
                f" {max(self.scales):g}: choose smaller scales, or tiles (--tile 512).",
            )
        return answer_from(self.probabilities(predictor, seen[None])[0], (pixels.shape[0], pixels.shape[1]))
