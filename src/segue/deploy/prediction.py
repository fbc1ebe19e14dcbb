"""What a model says of one image."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image

from segue.core.classes import Colour
from segue.core.errors import UserError
from segue.core.palette import flat_palette
from segue.core.records import atomic_file
from segue.data.images import mask_picture


@dataclass(frozen=True)
class Prediction:
    """The class of every pixel of an image, at the image's own size.

    Examples:
        >>> import segue
        >>> mask = segue.load("model.safetensors").predict("photo.jpg")
        >>> mask.ids.shape
        (48, 48)
        >>> discs = mask.ids == mask.classes.index("barred disc")
        >>> mask.overlay().save("overlay.png")
        >>> mask.save("mask.png")
    """

    ids: np.ndarray = field(repr=False)
    """index into `classes` of each pixel, height x width, uint8 (uint16 beyond 256 classes)"""
    classes: tuple[str, ...]
    """names of the model's channels, background first"""
    colours: tuple[Colour, ...] = field(repr=False)
    """red, green and blue of each class"""
    image: np.ndarray = field(repr=False)
    """the image as it was seen, upright, uint8, height x width x 3"""
    probabilities: np.ndarray | None = field(default=None, repr=False)
    """softmax over the classes, classes x height x width, float32; None unless it was asked for"""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the classes that some pixel has, in the model's order."""
        return tuple(self.classes[index] for index in np.unique(self.ids))

    def overlay(self, strength: float = 0.5) -> Image.Image:
        """The image with its classes in their colours over it; background stays as it is."""
        if not 0 <= strength <= 1:
            raise UserError(f"The strength of an overlay lies between 0 and 1; {strength} does not.")
        photo = Image.fromarray(self.image)
        colours = Image.fromarray(np.array(self.colours, dtype=np.uint8)[self.ids])
        where = Image.fromarray((self.ids > 0).astype(np.uint8) * 255)
        return Image.composite(Image.blend(photo, colours, strength), photo, where)

    def save(self, path: str | Path) -> None:
        """Write the ids as a PNG mask with a palette, which any viewer shows in colours.

        `np.asarray(PIL.Image.open(path))` gives the ids again.
        """
        if Path(path).suffix.lower() != ".png":
            raise UserError(f"A mask is written as PNG, which keeps every id: {path} should end in .png.")
        with atomic_file(path) as file:
            mask_picture(self.ids, flat_palette(self.colours[1:])).save(file, format="PNG")
