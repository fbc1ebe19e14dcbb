"""A model outside its run: images in, masks out, and files that hold it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from segue.core.classes import Colour
from segue.core.errors import UserError
from segue.core.palette import BACKGROUND, distinct_colours
from segue.deploy.export.endings import GRAPHS, WEIGHTS, ending_of
from segue.deploy.families import save_native
from segue.deploy.history import History
from segue.deploy.model_file import Header, save_model
from segue.deploy.model_folder import save_folder
from segue.deploy.prediction import Prediction
from segue.deploy.predictor import Answer
from segue.deploy.prepare import ImageLike, Preparation
from segue.engine.checkpoint import tensor_digest
from segue.losses import upsample
from segue.losses.pseudo import most_likely
from segue.losses.resizing import resized_as
from segue.models.adopted.network import AdoptedNetwork
from segue.models.classifier import close_background
from segue.models.network import Network

if TYPE_CHECKING:
    from segue.deploy.export.module import InputKind
    from segue.deploy.export.outputs import Outputs
    from segue.deploy.export.smaller import Smaller
    from segue.deploy.export.write import Report

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

    network: Network = field(repr=False)
    classes: tuple[str, ...]
    """names of the channels, background first"""
    images: Preparation = field(default_factory=Preparation)
    """how images come to the network: the size it was trained for, the bits of 16-bit images"""
    history: History | None = field(default=None, repr=False)
    """steps, recipe and what the method keeps; None: only the network is known"""
    colours: tuple[Colour, ...] = field(default=(), repr=False)
    """red, green and blue of each class in pictures; unless given, colours that can be told apart"""
    closed: bool = False
    """whether no pixel is called background: for a model of data in which every pixel has a class"""

    def __post_init__(self) -> None:
        if not self.colours:
            distinct = distinct_colours(min(len(self.classes), MOST_COLOURS))
            self.colours = (BACKGROUND, *islice(cycle(distinct), len(self.classes) - 1))

    @property
    def header(self) -> Header:
        """What stands beside the weights in a file."""
        return Header(self.network.spec(), self.classes, self.images, self.colours, self.closed)

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
        logits = self._logits(self.images.tensor(pixels))
        size = (pixels.shape[0], pixels.shape[1])
        with resized_as(self.network.resize):
            ids = most_likely(logits, size)[1][0].cpu().numpy()
            scores = upsample(logits, size).softmax(1)[0].cpu().numpy() if probabilities else None
        ids = ids.astype(np.min_scalar_type(len(self.classes) - 1))
        return Prediction(ids, self.classes, self.colours, pixels, scores)

    @torch.inference_mode()
    def answers(self, images: Sequence[np.ndarray]) -> list[Answer]:
        """What `predict` says of several images whose input sizes are equal, and how sure it is."""
        logits = self._logits(torch.cat([self.images.tensor(pixels) for pixels in images]))
        found = []
        for place, pixels in enumerate(images):
            with resized_as(self.network.resize):
                sure, ids = most_likely(logits[place : place + 1], (pixels.shape[0], pixels.shape[1]))
            kind = np.min_scalar_type(len(self.classes) - 1)
            found.append(Answer(ids[0].cpu().numpy().astype(kind), sure[0].float().cpu().numpy()))
        return found

    @torch.inference_mode()
    def probabilities(self, images_BHW3: np.ndarray) -> np.ndarray:
        """Softmax over the classes, B x classes x height x width, of images seen at the size they have."""
        logits = self._logits(torch.from_numpy(np.ascontiguousarray(images_BHW3.transpose(0, 3, 1, 2))))
        logits = upsample(logits, images_BHW3.shape[1:3], self.network.resize)
        return logits.softmax(1).float().cpu().numpy()

    def _logits(self, images_B3HW: Tensor) -> Tensor:
        """What the network says, at its own stride: all ways to predict go through here."""
        network = self.network.eval()
        logits = network(images_B3HW.to(network.mean.device)).logits
        return close_background(logits) if self.closed else logits

    @property
    def digest(self) -> str:
        """A text that is another one for a model that may answer otherwise."""
        weights = tensor_digest(self.network.state_dict())
        about = f"{self.classes} {self.images} {self.closed} {self.network.config} {weights}"
        return f"blake2b:{hashlib.blake2b(about.encode(), digest_size=16).hexdigest()}"

    def save(self, path: str | Path) -> None:
        """Write the model for `segue.load`: a model folder, or one file if the name ends in .safetensors.

        A folder holds what the method keeps between steps, too: it can be extended as well as the run can.

        Examples:
            >>> import segue
            >>> segue.load("runs/first").save("model")
        """
        if ending_of(path, (WEIGHTS,)) == WEIGHTS:
            save_model(self.network, self.classes, path, self.images, self.colours, self.closed)
            return
        save_folder(Path(path), self.network, self.header, self.history)

    def save_native(self, folder: str | Path) -> None:
        """Write an adopted model as its own library does, so that code of that library loads it.

        Hugging Face and smp: what `from_pretrained` reads. torchvision: weights.safetensors, the builder's
        name and the names of the channels.

        Examples:
            >>> import segue
            >>> segue.load("runs/first").save_native("again")
            Traceback (most recent call last):
            ...
            segue.core.errors.UserError: Only adopted models have a library of their own: save("again").
        """
        if not isinstance(self.network, AdoptedNetwork):
            raise UserError(f'Only adopted models have a library of their own: save("{folder}").')
        save_native(self.network, self.classes, Path(folder))

    def export(
        self,
        path: str | Path,
        outputs: Outputs = "all",
        input: InputKind = "uint8",
        smaller: Smaller | None = None,
        images: str | Path | None = None,
        size: int | None = None,
    ) -> Report | None:
        """Write the model for other programs: .onnx, .pt (TorchScript), .pt2 (torch.export); or as `save`.

        The file takes `image`, 0..255, batch x 3 x height x width, of any size unless a side is given, and
        gives `logits` and `mask` at that size. It is compared with the model before it is kept.
        docs/export.md has the choices.

        Examples:
            >>> import segue
            >>> report = segue.load("runs/first").export("model.pt")
            >>> report.difference.changed  # share of pixels
            0.0
        """
        from segue.deploy.export.write import Wanted, check_export, export_graph  # it imports this file

        wanted = Wanted(outputs, input, smaller, images, size)
        if check_export(path, wanted) in GRAPHS:
            return export_graph(self, path, wanted)
        self.save(path)
        return None
