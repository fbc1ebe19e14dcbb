"""What can be asked for masks: a model of Segue, or one in another runtime. No torch here.

Shapes: B images, K channels (background first), H x W pixels, h x w a map at any resolution.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from segue.core.classes import Colour
from segue.deploy.export.endings import ONNX
from segue.deploy.prepare import Preparation

STRIP_NUMBERS = 2**24
"""numbers of a strip of scores at full resolution: 64 MiB"""


class Answer(NamedTuple):
    """The class of every pixel of an image, at the image's own size."""

    ids: np.ndarray
    """index into the predictor's classes, H x W, uint8 (uint16 beyond 256 classes)"""
    confidence: np.ndarray
    """probability of that class, H x W, float32"""


class Predictor(Protocol):
    """Images in, classes out. `segue.deploy.model.Model` is one; numpy arrays on both sides."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the channels, background first."""

    @property
    def colours(self) -> tuple[Colour, ...]:
        """Red, green and blue of each channel."""

    @property
    def images(self) -> Preparation:
        """How files become pixels, and the size that the network sees."""

    @property
    def digest(self) -> str:
        """A text that is another one for a model that may answer otherwise."""

    def answers(self, images: Sequence[np.ndarray]) -> list[Answer]:
        """One answer per image, each seen whole: resized to `images.input_size`, answered at its own size.

        Images are uint8, H x W x 3, and of one *input* size; their own sizes may differ.
        """

    def probabilities(self, images_BHW3: np.ndarray) -> np.ndarray:
        """Probabilities of the channels, B x K x H x W, float32, of images seen at the size they have."""


def open_predictor(path: str | Path, device: str = "auto") -> Predictor:
    """The model of a model folder, a model file, a run, or an ONNX file of `segue export`."""
    if Path(path).suffix.lower() == ONNX:
        from segue.deploy.onnx_model import load_onnx  # it imports this file

        return load_onnx(path, device)
    from segue.deploy.load import load  # torch takes seconds

    return load(path, device)


def softmax(logits_BKhw: np.ndarray) -> np.ndarray:
    """Probabilities over the channels."""
    shifted = np.exp(logits_BKhw - logits_BKhw.max(1, keepdims=True))
    return shifted / shifted.sum(1, keepdims=True)


def answer_from(scores_Khw: np.ndarray, size: tuple[int, int], logits: bool = False) -> Answer:
    """The likeliest channel of each pixel of an image of this size, from scores at any resolution.

    Scores are brought to the image's size strip by strip: all of them at once are never stored.
    """
    height, width = size
    channels = len(scores_Khw)
    rows = max(1, STRIP_NUMBERS // (channels * width))
    ids = np.empty(size, dtype=np.min_scalar_type(channels - 1))
    confidence = np.empty(size, dtype=np.float32)
    for top in range(0, height, rows):
        part = slice(top, min(height, top + rows))
        scores = resized_rows(scores_Khw, size, part)
        ids[part], best = most_probable(scores)
        confidence[part] = 1 / np.exp(scores - best).sum(0) if logits else best
    return Answer(ids, confidence)


def most_probable(scores_Khw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first channel with the highest score of each pixel, and that score.

    Channel by channel: `argmax` over the first axis jumps through memory and takes several times as long.
    """
    best = scores_Khw[0].copy()
    ids = np.zeros(best.shape, dtype=np.min_scalar_type(len(scores_Khw) - 1))
    for channel in range(1, len(scores_Khw)):
        better = scores_Khw[channel] > best
        np.copyto(ids, channel, where=better, casting="unsafe")
        np.copyto(best, scores_Khw[channel], where=better)
    return ids, best


def resized_rows(map_Khw: np.ndarray, size: tuple[int, int], rows: slice) -> np.ndarray:
    """Some rows of a map resized to H x W: bilinear, corners not aligned, as the network's own upsampling."""
    if map_Khw.shape[1:] == size:
        return map_Khw[:, rows]
    above, below, down = (part[rows] for part in _neighbours(map_Khw.shape[1], size[0]))
    left, right, across = _neighbours(map_Khw.shape[2], size[1])
    lines = map_Khw[:, above] * (1 - down)[:, None] + map_Khw[:, below] * down[:, None]
    return lines[:, :, left] * (1 - across) + lines[:, :, right] * across


def _neighbours(source: int, target: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each place along a side: the two places of the source around it, and the share of the second."""
    position = np.maximum((np.arange(target) + 0.5) * (source / target) - 0.5, 0)
    first = np.minimum(position.astype(np.int64), source - 1)
    share = np.clip(position - first, 0, 1).astype(np.float32)
    return first, np.minimum(first + 1, source - 1), share
