"""A model outside its run: images in, masks out, and files that hold it."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path

import numpy as np
import torch

from segue.core.classes import Colour
from segue.core.errors import UserError
from segue.core.palette import BACKGROUND, distinct_colours
from segue.deploy.model_file import save_model
from segue.deploy.prediction import Prediction
from segue.deploy.prepare import ImageLike, Preparation
from segue.losses import upsample
from segue.losses.pseudo import most_likely
from segue.models.segmenter import Segmenter

WRITTEN = (".safetensors",)
"""endings of the files that a model can be written to"""
MOST_COLOURS = 200
"""number of colours that can be told apart; more classes share them"""


@dataclass
class Model:
    """A trained network with the names of its classes; `segue.load` gives one.

    Examples:
        >>> import segue
        >>> model = segue.load("runs/first")
        >>> model.classes
        ('background', 'barred disc', 'barred square', 'barred triangle')
        >>> mask = model.predict("photo.jpg")
        >>> model.save("model.safetensors")
    """

    network: Segmenter = field(repr=False)
    classes: tuple[str, ...]
    """names of the channels, background first"""
    images: Preparation = field(default_factory=Preparation)
    """how images come to the network: the size it was trained for, the bits of 16-bit images"""
    colours: tuple[Colour, ...] = field(default=(), repr=False)
    """red, green and blue of each class in pictures; unless given, colours that can be told apart"""

    def __post_init__(self) -> None:
        if not self.colours:
            distinct = distinct_colours(min(len(self.classes), MOST_COLOURS))
            self.colours = (BACKGROUND, *islice(cycle(distinct), len(self.classes) - 1))

    @torch.inference_mode()
    def predict(self, image: ImageLike, probabilities: bool = False) -> Prediction:
        """The class of every pixel of an image: a file, a PIL image, or height x width x 3 of uint8.

        Files are read as in training, turned upright as their EXIF data ask. The network sees the image as in
        a test of its run, the shorter side as long as the crop (`images.size`), but whole: nothing is cut
        off. Its answer is brought back to the image's own size.

        Examples:
            >>> import numpy, segue
            >>> model = segue.load("model.safetensors", device="cpu")
            >>> mask = model.predict(numpy.zeros((30, 40, 3), "uint8"), probabilities=True)
            >>> mask.ids.shape, mask.probabilities.shape
            ((30, 40), (4, 30, 40))
        """
        pixels = self.images.pixels(image)
        network = self.network.eval()
        logits = network(self.images.tensor(pixels).to(network.mean.device)).logits
        size = (pixels.shape[0], pixels.shape[1])
        ids = most_likely(logits, size)[1][0].cpu().numpy()
        scores = upsample(logits, size).softmax(1)[0].cpu().numpy() if probabilities else None
        ids = ids.astype(np.min_scalar_type(len(self.classes) - 1))
        return Prediction(ids, self.classes, self.colours, pixels, scores)

    def save(self, path: str | Path) -> None:
        """Write the model as one file that `segue.load` reads again: NAME.safetensors.

        Examples:
            >>> import segue
            >>> segue.load("runs/first").save("model.safetensors")
        """
        _check_ending(path, (".safetensors",))
        save_model(self.network, self.classes, path, self.images, self.colours)

    def export(self, path: str | Path) -> None:
        """Write the model in the format that the ending of `path` names.

        Examples:
            >>> import segue
            >>> segue.load("runs/first").export("model.onnx")
            Traceback (most recent call last):
            ...
            segue.core.errors.UserError: model.onnx: a model is not written as .onnx. Possible: .safetensors.
        """
        check_export(path)
        self.save(path)


def check_export(path: str | Path) -> None:
    """Whether a model can be written to a file of this name: known before the model is loaded."""
    _check_ending(path, WRITTEN)


def _check_ending(path: str | Path, endings: tuple[str, ...]) -> None:
    ending = Path(path).suffix.lower()
    if ending not in endings:
        wrong = f"is not written as {ending}" if ending else "needs an ending that says how it is written"
        raise UserError(f"{path}: a model {wrong}. Possible: {', '.join(endings)}.")
