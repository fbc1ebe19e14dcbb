"""From a photo to the input of a network: what a test of the run does, for an image of any size and kind."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from PIL import Image
from pydantic import Field

from segue.core.config import Count
from segue.core.errors import UserError
from segue.core.ordinary import user_path
from segue.data.images import READ_ERRORS, read_image, rgb_pixels
from segue.data.input_size import within_bounds

if TYPE_CHECKING:
    from torch import Tensor

ImageLike = str | Path | Image.Image | np.ndarray


@dataclass(frozen=True)
class Preparation:
    """How images come to a network."""

    size: Count | None = None
    """length of the shorter side that images are resized to; None: their own"""
    bits: Annotated[int, Field(ge=8, le=16)] = 16
    """bits that carry the picture in 16-bit grey images"""

    def pixels(self, image: ImageLike) -> np.ndarray:
        """uint8 RGB, height x width x 3, upright, from a file, a PIL image or such an array."""
        if isinstance(image, str | Path):
            return read_image(user_path(image), self.bits)
        if isinstance(image, Image.Image):
            if 0 in image.size:
                raise UserError(f"The image has no pixels: its size is {image.width} x {image.height}.")
            try:
                return rgb_pixels(image, "The image", self.bits)
            except UserError:
                raise
            except READ_ERRORS as error:  # PIL decodes a file that it has opened only now
                raise UserError(f"The image cannot be decoded: {error}.") from error
        if not isinstance(image, np.ndarray):
            raise UserError(
                f"An image is the path of a file, a PIL image or an array, not {type(image).__name__}."
            )
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or 0 in image.shape:
            raise UserError(
                f"An array of {image.dtype} with shape {image.shape} is no image: it should be uint8,"
                " height x width x 3, in the order red, green, blue."
            )
        return image.copy()  # whatever its owner does to it afterwards

    def tensor(self, pixels: np.ndarray) -> Tensor:
        """The input of the network, uint8, 1 x 3 x height x width."""
        import torch  # here: models in other runtimes need none
        from torchvision.transforms import InterpolationMode
        from torchvision.transforms.v2 import functional

        tensor = torch.from_numpy(np.require(pixels.transpose(2, 0, 1)[None], requirements=["C", "W"]))
        height, width = self.input_size(pixels.shape[0], pixels.shape[1])
        if tensor.shape[-2:] == (height, width):
            return tensor
        return functional.resize_image(tensor, [height, width], InterpolationMode.BILINEAR, antialias=True)

    def resized(self, pixels: np.ndarray) -> np.ndarray:
        """The input of the network as an array, height x width x 3: `tensor` without torch.

        PIL smooths like torchvision; single values may differ by one, since the two round differently.
        """
        height, width = self.input_size(pixels.shape[0], pixels.shape[1])
        return resize_pixels(pixels, height, width)

    def input_size(self, height: int, width: int) -> tuple[int, int]:
        """Height and width that the network sees: those of a test, within bounds for huge and thin images."""
        if self.size is not None:
            shorter = min(height, width)
            height, width = (int(self.size * side / shorter) for side in (height, width))
        return within_bounds(height, width)


def resize_pixels(pixels: np.ndarray, height: int, width: int) -> np.ndarray:
    """An image of another size: bilinear, smoothed where it becomes smaller."""
    if pixels.shape[:2] == (height, width):
        return pixels
    resized = Image.fromarray(np.ascontiguousarray(pixels)).resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(resized)
