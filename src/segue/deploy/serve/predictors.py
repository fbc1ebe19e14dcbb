"""What serves as a model: a thin layer over whatever predicts.

The work on an image falls into three parts, which different threads do: `prepare` (its input), `run` (the
network on several inputs of one size), `answer` (the class of every pixel at the size that was asked for).
"""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from segue.core.classes import Colour
from segue.deploy.model import Model
from segue.deploy.predictor import Predictor
from segue.losses.pseudo import most_likely
from segue.losses.resizing import resized_as
from segue.models._speed.fold import fold_norms
from segue.models.classifier import close_background

LEAST = 1e-30
"""probability whose logarithm stands for that of 0"""
Size = tuple[int, int]
"""height and width"""


class Staged(Protocol):
    """A network with the names and colours of its classes."""

    @property
    def classes(self) -> tuple[str, ...]: ...

    @property
    def colours(self) -> tuple[Colour, ...]: ...

    @property
    def bits(self) -> int:
        """Bits that carry the picture in 16-bit grey images."""

    def prepare(self, pixels: np.ndarray) -> Tensor:
        """The input of the network, uint8, 3 x height x width, from uint8 RGB pixels."""

    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Scores of inputs that have one size."""

    def answer(self, scores: Tensor, size: Size) -> tuple[np.ndarray, np.ndarray]:
        """Class index (uint8, or uint16 beyond 256 classes) and its probability (float32) of each pixel."""


class TorchPredictor:
    """A model of Segue, made quick: norms folded into convolutions, channels last in memory."""

    def __init__(self, model: Model) -> None:
        network = copy.deepcopy(model.network).eval().requires_grad_(False)  # the caller's stays as it is
        fold_norms(network)
        self.network, self.images = network.to(memory_format=torch.channels_last), model.images
        self.closed = model.closed
        self.classes, self.colours, self.bits = model.classes, model.colours, model.images.bits
        self._ids = np.min_scalar_type(len(model.classes) - 1)

    def prepare(self, pixels: np.ndarray) -> Tensor:
        return self.images.tensor(pixels)[0]

    @torch.inference_mode()
    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        batch = torch.stack([*inputs]).to(self.network.mean.device, memory_format=torch.channels_last)
        logits = self.network(batch).logits
        return list((close_background(logits) if self.closed else logits).cpu())

    def answer(self, scores: Tensor, size: Size) -> tuple[np.ndarray, np.ndarray]:
        with resized_as(self.network.resize):
            return _answer(scores, size, self._ids)


class ArrayPredictor:
    """A model in another runtime, which takes and gives numpy arrays."""

    def __init__(self, model: Predictor) -> None:
        self.model, self.bits = model, model.images.bits
        self.classes, self.colours = model.classes, model.colours
        self._ids = np.min_scalar_type(len(model.classes) - 1)

    def prepare(self, pixels: np.ndarray) -> Tensor:
        return self.model.images.tensor(pixels)[0]

    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        images_BHW3 = torch.stack([*inputs]).permute(0, 2, 3, 1).contiguous().numpy()
        # logarithms are logits again, up to a constant per pixel: they are what is to be interpolated
        return list(torch.from_numpy(self.model.probabilities(images_BHW3)).clamp_min(LEAST).log())

    def answer(self, scores: Tensor, size: Size) -> tuple[np.ndarray, np.ndarray]:
        return _answer(scores, size, self._ids)


@torch.inference_mode()
def _answer(scores: Tensor, size: Size, kind: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    confidence, ids = most_likely(scores[None], size)
    return ids[0].numpy().astype(kind), confidence[0].numpy()


@dataclass(frozen=True)
class Served:
    """A model with its name, and the files that it came from."""

    name: str
    predictor: Staged
    path: Path
    seen: dict[str, tuple[int, int]]
    """modification time and size of each file when the model was loaded"""

    @property
    def changed(self) -> bool:
        """Whether the files are others now than those that were loaded."""
        return look(self.path) != self.seen


def staged(model: Predictor) -> Staged:
    """The layer over a model of Segue, or over one of another runtime."""
    return TorchPredictor(model) if isinstance(model, Model) else ArrayPredictor(model)


def look(path: Path) -> dict[str, tuple[int, int]]:
    """Modification time and size of a file, or of every file of a model folder."""
    try:
        entries = sorted(path.iterdir()) if path.is_dir() else [path]
        found = {entry.name: entry.lstat() for entry in entries}
    except OSError:
        return {}
    return {name: (status.st_mtime_ns, status.st_size) for name, status in found.items()}


def served(predictors: Sequence[tuple[Path, Staged]]) -> list[Served]:
    """Models by the names of their folders or files; equal names get a number."""
    names = [os.path.basename(os.path.abspath(path)) for path, _ in predictors]
    if len(set(names)) < len(names):
        names = [f"{name} ({place + 1})" for place, name in enumerate(names)]
    return [
        Served(name, predictor, path, look(path))
        for name, (path, predictor) in zip(names, predictors, strict=True)
    ]
