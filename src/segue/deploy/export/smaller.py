"""Smaller ONNX files: weights of 16 bit, or weights and maps of 8 bit; and what that costs, measured."""

from __future__ import annotations

import logging
import math
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from segue.core.classes import IGNORE
from segue.core.errors import UserError
from segue.core.metrics import iou, mean
from segue.deploy.export.extra import onnx_package
from segue.deploy.export.outputs import IMAGE
from segue.deploy.export.samples import Samples
from segue.deploy.export.seal import sealed
from segue.deploy.onnx_model import OnnxModel

Smaller = Literal["half", "int8"]
ROUNDS = 5
"""measurements of the time of an image"""
QUANTISED = ("Conv", "ConvTranspose", "Gemm", "MatMul")
"""operations that are done in 8 bit: those that take the time"""


@dataclass(frozen=True)
class Cost:
    """A smaller file against the one in float32."""

    agreement: float
    """share of pixels that have the same class"""
    miou: tuple[float, float] | None
    """mean IoU before and after, background included; None: the images have no labels"""
    speed: float
    """time of the larger file by that of the smaller one: above 1 is quicker"""
    size: float
    """bytes of the smaller file by those of the larger one"""
    what: str
    """the measured images in words"""


def make_smaller(content: bytes, kind: Smaller, samples: Samples) -> tuple[bytes, Cost]:
    """The smaller file, and what it costs."""
    whole = OnnxModel(content, "cpu")
    made = sealed(_half(content) if kind == "half" else _int8(content, whole, samples.calibrate))
    small = OnnxModel(made, "cpu")
    if not np.isfinite(small.logits(whole.images.resized(samples.measure[0])[None])).all():
        raise UserError(f"--{kind}: numbers of this model leave the range of {kind}. Leave the option out.")
    return made, measure(whole, small, samples, len(made) / len(content))


def _half(content: bytes) -> bytes:
    onnx, float16 = onnx_package("onnx"), onnx_package("onnxruntime.transformers.float16")
    model = float16.convert_float_to_float16(onnx.load_from_string(content), keep_io_types=True)
    return model.SerializeToString()


def _int8(content: bytes, whole: OnnxModel, images: Sequence[np.ndarray]) -> bytes:
    onnx, quantization = onnx_package("onnx"), onnx_package("onnxruntime.quantization")
    level = logging.root.level
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "int8.onnx"
        try:
            logging.root.setLevel(logging.ERROR)  # it advises to prepare the model, which is done already
            quantization.quantize_static(
                onnx.load_from_string(content),
                target,
                _Reader(whole, images),
                per_channel=True,
                # weights of 7 bit: processors without VNNI overflow with 8
                reduce_range=True,
                activation_type=quantization.QuantType.QUInt8,
                weight_type=quantization.QuantType.QInt8,
                op_types_to_quantize=list(QUANTISED),
            )
        finally:
            logging.root.setLevel(level)
        model = onnx.load(target)
    onnx.helper.set_model_props(model, whole.session.get_modelmeta().custom_metadata_map)
    return model.SerializeToString()


class _Reader:
    """Images one by one, as the network gets them."""

    def __init__(self, model: OnnxModel, images: Sequence[np.ndarray]) -> None:
        self.inputs: Iterator[dict[str, np.ndarray]] = ({IMAGE: _input(model, pixels)} for pixels in images)

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.inputs, None)


def measure(whole: OnnxModel, small: OnnxModel, samples: Samples, size: float) -> Cost:
    """Both files on the same images."""
    channels = len(whole.classes)
    matrices = np.zeros((3, channels, channels), dtype=np.int64)
    for place, pixels in enumerate(samples.measure):
        before, after = (model.answers([pixels])[0].ids for model in (whole, small))
        pairs = [(before, after)]
        if samples.truth is not None:
            pairs += [(samples.truth[place], before), (samples.truth[place], after)]
        for matrix, (rows, columns) in zip(matrices, pairs, strict=False):
            matrix += _count(rows, columns, channels)
    same = np.trace(matrices[0]) / matrices[0].sum()
    scores = None if samples.truth is None else (mean(iou(matrices[1])), mean(iou(matrices[2])))
    return Cost(float(same), scores, _speed(whole, small, samples.measure[0]), size, samples.what)


def _count(rows: np.ndarray, columns: np.ndarray, channels: int) -> np.ndarray:
    counted = rows != IGNORE if channels <= IGNORE else np.ones_like(rows, dtype=bool)
    index = rows[counted].astype(np.int64) * channels + columns[counted]
    return np.bincount(index, minlength=channels * channels).reshape(channels, channels)


def _speed(whole: OnnxModel, small: OnnxModel, pixels: np.ndarray) -> float:
    """The quickest of several rounds, both in turn."""
    best = [math.inf, math.inf]
    for _ in range(ROUNDS):
        for place, model in enumerate((whole, small)):
            inputs: dict[str, Any] = {IMAGE: _input(model, pixels)}
            start = time.perf_counter()
            model.session.run([model.output], inputs)
            best[place] = min(best[place], time.perf_counter() - start)
    return best[0] / best[1]


def _input(model: OnnxModel, pixels: np.ndarray) -> np.ndarray:
    resized = model.images.resized(pixels).transpose(2, 0, 1)[None]
    return np.ascontiguousarray(resized, dtype=model.kind)
