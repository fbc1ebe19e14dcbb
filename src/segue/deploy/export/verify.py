"""Does a written file say what the model says? Compared at other sizes, and in a batch."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from segue.core.errors import UserError
from segue.deploy.export.endings import ONNX, TORCHSCRIPT
from segue.deploy.export.extra import reason_of
from segue.deploy.export.module import InputKind, at_size, logits_of, resize_of
from segue.deploy.export.outputs import IMAGE, LOGITS, MASK
from segue.deploy.export.pictures import SHAPES, picture
from segue.deploy.onnx_model import open_session

MOST_CHANGED = 0.001
"""largest share of pixels whose class may change"""

OTHER = "Another ending may do (.onnx, .pt, .pt2): each is made in its own way."

Run = Callable[[np.ndarray], Mapping[str, np.ndarray]]


@dataclass(frozen=True)
class Difference:
    """A file against its model, over all pictures."""

    largest: float
    """largest difference of a logit; NaN if the file gives masks alone"""
    changed: float
    """share of pixels whose class is another one"""


def compare(network: nn.Module, run: Run, kind: InputKind) -> Difference:
    """The answers of a file, by `run`, against those of the network as `Model.predict` has them."""
    largest, changed, pixels = [], 0, 0
    for place, shape in enumerate(SHAPES):
        images = picture(shape, place)
        expected = _reference(network, images)
        try:
            found = run(images.astype(kind))
        except Exception as error:  # each runtime has its own
            size = f"{shape[0]} x {shape[2]} x {shape[3]}"
            raise UserError(
                f"The file would fail with images of {size}, and is not written: {reason_of(error)}. {OTHER}"
            ) from error
        ids = found[MASK] if MASK in found else found[LOGITS].argmax(1)
        if LOGITS in found:
            largest.append(float(np.abs(found[LOGITS] - expected).max()))
        wanted = expected.argmax(1)
        changed, pixels = changed + int((ids != wanted).sum()), pixels + wanted.size
    return Difference(max(largest, default=math.nan), changed / pixels)


def refuse_changed(difference: Difference, name: str) -> None:
    """`UserError` unless the file may be kept."""
    if difference.changed > MOST_CHANGED or math.isinf(difference.largest):
        raise UserError(
            f"{name} is not written: {100 * difference.changed:.2f} % of the pixels would have another class"
            f" than the model gives them ({100 * MOST_CHANGED:g} % may; largest difference of a logit:"
            f" {difference.largest:.2g}). {OTHER}"
        )


def runner(content: bytes, ending: str, names: tuple[str, ...]) -> Run:
    """How the content of a file is asked, in the program that would run it."""
    if ending == ONNX:
        session = open_session(content, "cpu")
        return lambda images: dict(zip(names, session.run(list(names), {IMAGE: images}), strict=True))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch will drop TorchScript one day
        module = (
            torch.jit.load(io.BytesIO(content))
            if ending == TORCHSCRIPT
            else torch.export.load(io.BytesIO(content)).module()
        )

    def run(images: np.ndarray) -> dict[str, np.ndarray]:
        with torch.inference_mode():
            outputs = module(torch.from_numpy(images))
        return {name: output.numpy() for name, output in zip(names, outputs, strict=True)}

    return run


@torch.inference_mode()
def _reference(network: nn.Module, images: np.ndarray) -> np.ndarray:
    device = next((parameter.device for parameter in network.parameters()), torch.device("cpu"))
    logits = logits_of(network.eval(), torch.from_numpy(images).to(device))
    return at_size(logits, images.shape[-2:], resize_of(network)).cpu().numpy()
