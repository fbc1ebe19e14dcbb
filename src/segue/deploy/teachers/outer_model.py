"""A model of which the outputs alone are known: it predicts and teaches, but cannot grow.

Shapes: B batch, K channels, H x W pixels, h x w whatever the model answers with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle, islice

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from segue.core.classes import Colour
from segue.core.errors import UserError
from segue.core.palette import BACKGROUND, distinct_colours
from segue.deploy.adopt import channel_order
from segue.deploy.prediction import Prediction
from segue.deploy.prepare import ImageLike, Preparation
from segue.losses.pseudo import most_likely
from segue.models.adopted.grow import NEVER
from segue.models.adopted.parts import Normalisation
from segue.models.outer import Outer

PROBE = (96, 128)
"""height and width of the image by which a model's answer is looked at"""
LEAST = 1e-6
"""smallest probability of which a logarithm is taken"""


@dataclass
class OuterModel:
    """Images in, classes out, by somebody else's computation."""

    scores: Callable[[Tensor], Tensor] = field(repr=False)
    """images (0..255, B x 3 x H x W, red first) -> scores in the model's own order of channels"""
    classes: tuple[str, ...]
    """names of the channels, background first"""
    place: str
    """file or folder that it comes from"""
    digest: str
    """text that is another one for a model that may answer otherwise"""
    kind: str = "logits"
    """kind of the scores: logits or probabilities"""
    order: Sequence[int] = ()
    """channels of the model in the order that they have here; empty: the same"""
    binary: bool = False
    """whether it has one channel, beside which background has the logit 0"""
    front: bool = False
    """whether a channel that is never the answer is put in front, where background would be"""
    closed: bool = False
    """whether it knows no background"""
    images: Preparation = field(default_factory=Preparation)
    colours: tuple[Colour, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if not self.colours:
            distinct = distinct_colours(min(len(self.classes), 200))
            self.colours = (BACKGROUND, *islice(cycle(distinct), len(self.classes) - 1))

    def logits(self, images_B3HW: Tensor) -> Tensor:
        """Logits of the channels, background first, at the size that the model gives."""
        scores = self.scores(images_B3HW).float()
        if self.kind == "probabilities":
            scores = scores.clamp(LEAST, 1 - LEAST).logit() if self.binary else scores.clamp_min(LEAST).log()
        if self.binary:
            return torch.cat([torch.zeros_like(scores), scores], dim=1)
        if self.order:
            scores = scores[:, list(self.order)]
        return F.pad(scores, (0, 0, 0, 0, 1, 0), value=NEVER) if self.front else scores

    @property
    def outer(self) -> Outer:
        return Outer(self.logits, self.closed)

    @torch.inference_mode()
    def predict(self, image: ImageLike, probabilities: bool = False) -> Prediction:
        """The class of every pixel of an image."""
        pixels = self.images.pixels(image)
        logits, size = self.logits(self.images.tensor(pixels)), (pixels.shape[0], pixels.shape[1])
        ids = most_likely(logits, size)[1][0].cpu().numpy()
        scores = None
        if probabilities:
            resized = F.interpolate(logits, size, mode="bilinear", align_corners=False)
            scores = resized.softmax(1)[0].cpu().numpy()
        return Prediction(
            ids.astype(np.min_scalar_type(len(self.classes) - 1)), self.classes, self.colours, pixels, scores
        )


def outer_model(
    scores: Callable[[Tensor], Tensor],
    classes: Sequence[str],
    place: str,
    digest: str,
    background: str | None = None,
    images: Preparation | None = None,
) -> OuterModel:
    """The model behind these scores, after a look at what they are."""
    found = probed(scores, place)
    names, order, closed = channel_order(classes, found.shape[1], background)
    kind = _kind(found, place)
    model = OuterModel(scores, names, place, digest, kind, order, found.shape[1] == 1, closed, closed,
                       images or Preparation())  # fmt: skip
    if not closed and float(found[:, order[0] if order else 0].max()) < NEVER / 2:
        return replace(model, closed=True)  # as `segue export` writes a model that knows no background
    return model


def probed(scores: Callable[[Tensor], Tensor], place: str) -> Tensor:
    """The scores of an image of noise."""
    noise = torch.rand(1, 3, *PROBE, generator=torch.Generator().manual_seed(0)) * 255
    try:
        with torch.inference_mode():
            return scores(noise).float()
    except UserError:
        raise
    except Exception as error:  # whatever a foreign graph raises
        reason = str(error).strip().splitlines()[-1:] or [type(error).__name__]
        raise UserError(
            f"{place} does not answer to an image of {PROBE[0]} x {PROBE[1]} pixels: {reason[0][:200]}"
        ) from error


def _kind(scores_BKhw: Tensor, place: str) -> str:
    """Logits, or probabilities of alternatives; several classes per pixel are refused."""
    if float(scores_BKhw.min()) < 0 or float(scores_BKhw.max()) > 1:
        return "logits"
    total = scores_BKhw.sum(1)
    if scores_BKhw.shape[1] == 1 or torch.allclose(total, torch.ones_like(total), atol=1e-2):
        return "probabilities"
    raise UserError(
        f"{place} gives numbers from 0 to 1 that do not add up to 1 over its {scores_BKhw.shape[1]} channels:"
        " several classes per pixel (multilabel). Segue's models give every pixel one class."
    )


def normalised(images_B3HW: Tensor, numbers: Normalisation | None) -> Tensor:
    """Images as a model wants them; None: 0..255, as they are."""
    images = images_B3HW.float()
    if numbers is None:
        return images
    mean, std = (
        torch.tensor(values, device=images.device).view(1, 3, 1, 1) * (255 / numbers.white)
        for values in (numbers.mean, numbers.std)
    )
    return ((images.flip(1) if numbers.bgr else images) - mean) / std


def of_size(images_B3HW: Tensor, size: tuple[int, int] | None) -> Tensor:
    """Images of the one size that a model takes."""
    if size is None or tuple(images_B3HW.shape[-2:]) == size:
        return images_B3HW
    return F.interpolate(images_B3HW.float(), size, mode="bilinear", align_corners=False, antialias=True)
