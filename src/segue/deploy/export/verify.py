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
from segue.deploy.export.extra import ONE_SIZE, reason_of
from segue.deploy.export.module import InputKind, logits_of, resize_of
from segue.deploy.export.outputs import IMAGE, LOGITS, MASK
from segue.deploy.export.pictures import SHAPES, picture
from segue.deploy.onnx_model import open_session
from segue.models.network import at_size

MOST_CHANGED = 0.001
"""largest share of pixels whose class may change"""

OTHER = f"Another ending may do (.onnx, .pt, .pt2): each is made in its own way. {ONE_SIZE}"
LARGE = 0.01
"""difference of a logit, by the largest logit, that rounding does not explain"""

Run = Callable[[np.ndarray], Mapping[str, np.ndarray]]


@dataclass(frozen=True)
class Difference:
    """A file against its model, over all pictures."""

    largest: float
    """largest difference of a logit; NaN if the file gives masks alone"""
    changed: float
    """share of pixels whose class is another one"""
    scale: float = math.nan
    """largest logit, by its size"""

    @property
    def remark(self) -> str:
        """A word on logits that differ though the classes do not."""
        if math.isnan(self.largest) or self.largest <= LARGE * self.scale:
            return ""
        return f"logits reach {self.scale:.2g}: the file's confidences are others than the model's"


def compare(network: nn.Module, run: Run, kind: InputKind, side: int | None = None) -> Difference:
    """The answers of a file, by `run`, against those of the network as `Model.predict` has them.

    Two sizes are tried, one of them in a batch; with a `side` both have that one.
    """
    largest, scale, changed, pixels = [], 0.0, 0, 0
    shapes = SHAPES if side is None else ((1, 3, side, side), (2, 3, side, side))
    for place, shape in enumerate(shapes):
        images, size = picture(shape, place), f"{shape[0]} x {shape[2]} x {shape[3]}"
        expected = _reference(network, images)
        try:
            found = run(images.astype(kind))
        except Exception as error:  # each runtime has its own
            raise UserError(
                f"The file would fail with images of {size}, and is not written: {reason_of(error)}. {OTHER}"
            ) from error
        ids = found[MASK] if MASK in found else found[next(iter(found))].argmax(1)
        wanted, scale = expected.argmax(1), max(scale, float(np.abs(expected).max()))
        if ids.shape != wanted.shape:
            shown = " x ".join(map(str, ids.shape))
            raise UserError(
                f"The file would answer images of {size} with {shown}, and is not written. {OTHER}"
            )
        if LOGITS in found:
            largest.append(float(np.abs(found[LOGITS] - expected).max()))
        changed, pixels = changed + int((ids != wanted).sum()), pixels + wanted.size
    return Difference(max(largest, default=math.nan), changed / pixels, scale)


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
