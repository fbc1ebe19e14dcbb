"""A teacher from outside: a model of which the outputs alone are known, such as an ONNX file.

It stands where the frozen model of the step before stands (models/segmenter.Teacher), for methods that look
at logits and at nothing else of it.

Shapes: B batch, O the teacher's channels with background, H x W pixels, h x w the student's map.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from segue.models.network import Network, Output


@dataclass(frozen=True)
class Outer:
    """What the engine needs of an outer teacher."""

    logits: Callable[[Tensor], Tensor]
    """images (0..255, B x 3 x H x W) -> logits of any size, background first"""
    closed: bool = False
    """whether its channel 0 is never the answer: it knows no background"""


class OuterTeacher:
    """The logits of an outer teacher, at the places of a student's map. Nothing of it is saved or trained."""

    def __init__(self, outer: Outer, student: Network) -> None:
        """`student` is a copy, which tells the size of its map."""
        self.outer, self._student = outer, student.eval().requires_grad_(False)
        self._sizes: dict[tuple[int, ...], tuple[int, ...]] = {}

    def __call__(self, images_B3HW: Tensor, stages: int = 0) -> Output:
        with torch.inference_mode():
            logits = self.outer.logits(images_B3HW).float()
            # what is larger is averaged, not sampled: a map's place stands for all its pixels
            size = list(self._map_size(images_B3HW))
            logits = F.interpolate(logits, size, mode="bilinear", align_corners=False, antialias=True)
        return Output(logits.clone())

    def _map_size(self, images_B3HW: Tensor) -> tuple[int, ...]:
        size = tuple(images_B3HW.shape[-2:])
        if size not in self._sizes:
            self._sizes[size] = tuple(self._student(images_B3HW[:1]).logits.shape[-2:])
        return self._sizes[size]
