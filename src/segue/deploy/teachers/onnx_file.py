"""An ONNX file of anybody's as a teacher, run by onnxruntime: its outputs are all that is seen of it.

What `segue export` wrote tells its classes and normalises inside. Of other files the metadata may tell names;
normalisation is said by the user. A file of one size gets images of that size, one of a fixed batch gets as
many at a time.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from segue.core.errors import UserError
from segue.deploy.export.metadata import OWN, About, read_about
from segue.deploy.export.outputs import LOGITS, MAP
from segue.deploy.teachers.outer_model import normalised, of_size
from segue.models.adopted.parts import Normalisation

NAMES = ("names", "class_names", "classes", "labels", "label_names", "model_info labels")
"""keys of metadata under which writers put the names of channels"""
TYPES = {"tensor(float)": np.float32, "tensor(uint8)": np.uint8, "tensor(float16)": np.float16}


class OnnxScores:
    """Images (0..255, B x 3 x H x W) -> the scores of an ONNX file."""

    def __init__(self, session: Any, name: str, numbers: Normalisation | None, channels: int) -> None:
        """`channels`: how many classes are named."""
        self.session, self.name, self.numbers = session, name, numbers
        inputs = self.session.get_inputs()
        if len(inputs) != 1 or len(inputs[0].shape) != 4 or inputs[0].type not in TYPES:
            told = ", ".join(f"{each.name} {each.type} {each.shape}" for each in inputs)
            raise UserError(f"{name} takes {told}: a teacher takes one batch of images.")
        self.input, shape = inputs[0].name, inputs[0].shape
        self.type, self.last = TYPES[inputs[0].type], shape[3] == 3 and shape[1] != 3
        sides = shape[1:3] if self.last else shape[2:]
        fixed = all(isinstance(side, int) and side > 0 for side in sides)
        self.size = (int(sides[0]), int(sides[1])) if fixed else None
        self.batch = shape[0] if isinstance(shape[0], int) and shape[0] > 0 else None
        self.output, self.output_last = self._chosen(channels)

    def _chosen(self, channels: int) -> tuple[str, bool]:
        """The output with the classes, and whether its channels come last."""
        maps = [each for each in self.session.get_outputs() if "float" in each.type and len(each.shape) == 4]
        by_name = {each.name: each for each in maps}
        maps = [by_name[name] for name in (MAP, LOGITS) if name in by_name] or maps
        for each in maps:
            if each.shape[3] == channels and each.shape[1] != channels:
                return each.name, True
            if each.shape[1] in (channels, 1) or not isinstance(each.shape[1], int):
                return each.name, False
        told = ", ".join(f"{each.name} {each.type} {each.shape}" for each in self.session.get_outputs())
        raise UserError(
            f"{self.name} gives {told}: a teacher gives maps of scores with {channels} channels, one for each"
            " class that is named, and not classes alone."
        )

    def __call__(self, images_B3HW: Tensor) -> Tensor:
        images = of_size(normalised(images_B3HW.cpu(), self.numbers), self.size).numpy()
        step = self.batch or len(images)
        found = [self._run(images[start : start + step], step) for start in range(0, len(images), step)]
        return torch.from_numpy(np.concatenate(found)).to(images_B3HW.device)

    def _run(self, images_B3HW: np.ndarray, count: int) -> np.ndarray:
        """Scores of at most `count` images; a file of a fixed batch sees the last one again and again."""
        again = images_B3HW[-1:].repeat(count - len(images_B3HW), 0)
        padded = np.concatenate([images_B3HW, again])
        padded = padded.round() if self.type == np.uint8 else padded
        padded = padded.transpose(0, 2, 3, 1) if self.last else padded
        inputs = {self.input: np.ascontiguousarray(padded, dtype=self.type)}
        scores = self.session.run([self.output], inputs)[0]
        scores = scores.transpose(0, 3, 1, 2) if self.output_last else scores
        return scores[: len(images_B3HW)].astype(np.float32)


def about_of(session: Any, name: str) -> tuple[About | None, list[str] | None]:
    """What Segue wrote into an ONNX file, if it did, and the names that others may have written."""
    told = session.get_modelmeta().custom_metadata_map
    return (read_about(told, name) if OWN in told else None), names_in(told)


def names_in(told: Mapping[str, str]) -> list[str] | None:
    """Names of the channels from the metadata of a file: a list, or a table channel -> name."""
    for key in NAMES:
        if key in told and (names := _names(_value(told[key]))):
            return names
    return None


def _value(text: str) -> Any:
    for read in (json.loads, ast.literal_eval):
        try:
            value = read(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        if not isinstance(value, str):
            return value
    return [name.strip() for name in text.split("," if "," in text else None)]


def _names(value: Any) -> list[str] | None:
    if isinstance(value, Mapping):
        table = {str(key): name for key, name in value.items()}
        if sorted(table) != sorted(map(str, range(len(table)))):
            return None
        return [str(table[str(channel)]) for channel in range(len(table))]
    return [str(name) for name in value] if isinstance(value, Sequence) and len(value) > 0 else None
