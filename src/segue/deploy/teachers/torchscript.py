"""A TorchScript file as a teacher: a graph that torch runs, without its Python code.

Such an archive is no pickle of Python objects, but it is a program: running it runs what its author wrote,
with torch's own operators. Name a stranger's file only if you would run it.
"""

from __future__ import annotations

import io
import json
import warnings
from typing import Any

import torch
from torch import Tensor

from segue.core.errors import UserError
from segue.deploy.export.formats import ABOUT
from segue.deploy.export.metadata import OWN, About, read_about
from segue.deploy.teachers.onnx_file import names_in
from segue.deploy.teachers.outer_model import normalised
from segue.models.adopted import trees
from segue.models.adopted.parts import Normalisation
from segue.models.weights_file import refuse_damaged


class ScriptScores:
    """Images (0..255, B x 3 x H x W) -> the scores of a TorchScript file."""

    def __init__(self, module: Any, name: str, numbers: Normalisation | None) -> None:
        self.module, self.name, self.numbers = module.eval(), name, numbers
        for parameter in self.module.parameters():
            parameter.requires_grad_(False)

    def __call__(self, images_B3HW: Tensor) -> Tensor:
        images = normalised(images_B3HW, self.numbers)
        scores = trees.logits_of(self.module.to(images.device)(images))
        if scores is None:
            raise UserError(f"{self.name} gives no map of scores, B x classes x height x width.")
        return scores


def open_script(content: bytes, name: str) -> tuple[Any, About | None, list[str] | None]:
    """The module of a file, what Segue wrote into it, and the names that others may have written."""
    extra = {ABOUT: ""}
    refuse_damaged(io.BytesIO(content), name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch says that it will drop TorchScript one day
            module = torch.jit.load(io.BytesIO(content), map_location="cpu", _extra_files=extra)
    except RuntimeError as error:
        raise UserError(
            f"{name} is no TorchScript archive. A pickled model is not opened: it could run code. A file of"
            " weights belongs to a network, such as torchvision:NAME@FILE. Where the model is, write"
            " torch.jit.trace(model, image).save('model.pt'), or ONNX."
        ) from error
    told = _told(extra[ABOUT], name)
    return module, (read_about(told, name) if OWN in told else None), names_in(told)


def _told(text: str, name: str) -> dict[str, str]:
    """The metadata of a file, text by text; none where it has none."""
    try:
        told = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise UserError(f"{name}: {ABOUT} in it is not JSON: {error}.") from error
    if not isinstance(told, dict) or not all(isinstance(value, str) for value in told.values()):
        raise UserError(f"{name}: {ABOUT} in it should hold texts by their names.")
    return told
