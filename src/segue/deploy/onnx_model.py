"""A model that `segue export` wrote as ONNX, run by onnxruntime alone. No torch.

Shapes: B images, K channels (background first), H x W pixels, h x w maps at the network's stride.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from segue.core.classes import Colour
from segue.core.errors import UserError, reason
from segue.core.ordinary import read_ordinary, user_path
from segue.deploy.export.extra import onnx_package, reason_of
from segue.deploy.export.metadata import read_about
from segue.deploy.export.outputs import IMAGE, LOGITS, MAP
from segue.deploy.export.seal import check_seal
from segue.deploy.prediction import Prediction
from segue.deploy.predictor import Answer, answer_from, resized_rows, softmax
from segue.deploy.prepare import ImageLike, Preparation

LARGEST = 2**31
"""bytes of the largest ONNX file"""
QUIET = 4
"""onnxruntime's level of messages with which it ends; its errors become sentences here"""
OUTSIDE = "session.model_external_initializers_file_folder_path"
"""onnxruntime's setting for the folder of weights outside the file; else it is the current one"""


def load_onnx(path: str | Path, device: str = "auto") -> OnnxModel:
    """The model of an ONNX file that `segue export` wrote."""
    path = user_path(path)
    try:
        content = read_ordinary(path, LARGEST)
    except OSError as error:
        raise UserError(f"Cannot read {path}: {reason(error)}.") from error
    return OnnxModel(content, device, str(path))


class OnnxModel:
    """Images in, classes out; the same answers as the model that was exported."""

    def __init__(self, content: bytes, device: str = "auto", name: str = "The file") -> None:
        self.session = open_session(content, device, name)
        about = read_about(self.session.get_modelmeta().custom_metadata_map, name)
        self.classes: tuple[str, ...] = about.classes
        self.colours: tuple[Colour, ...] = about.colours
        self.images: Preparation = about.images
        self.digest = f"blake2b:{hashlib.blake2b(content, digest_size=16).hexdigest()}"
        outputs = [output.name for output in self.session.get_outputs()]
        wanted = [output for output in (MAP, LOGITS) if output in outputs]
        if not wanted:
            raise UserError(
                f"{name} gives {' and '.join(outputs)} alone: write it again with '--output all'."
            )
        side = self.session.get_inputs()[0].shape[-1]
        if isinstance(side, int):
            raise UserError(
                f"{name} takes images of {side} x {side} pixels alone, for other programs: use the model that"
                " it was made of, or write it again without --size."
            )
        self.output = wanted[0]
        self.kind = np.float32 if self.session.get_inputs()[0].type == "tensor(float)" else np.uint8

    def logits(self, images_BHW3: np.ndarray) -> np.ndarray:
        """Logits at the network's own stride, or at the images' size if the file has no others."""
        inputs = np.ascontiguousarray(images_BHW3.transpose(0, 3, 1, 2), dtype=self.kind)
        return self.session.run([self.output], {IMAGE: inputs})[0]

    def answers(self, images: Sequence[np.ndarray]) -> list[Answer]:
        """What `predict` says of several images whose input sizes are equal, and how sure it is."""
        logits_BKhw = self.logits(np.stack([self.images.resized(pixels) for pixels in images]))
        return [
            answer_from(logits_Khw, (pixels.shape[0], pixels.shape[1]), logits=True)
            for logits_Khw, pixels in zip(logits_BKhw, images, strict=True)
        ]

    def probabilities(self, images_BHW3: np.ndarray) -> np.ndarray:
        """Softmax over the classes, B x K x H x W, of images seen at the size they have."""
        return self._softmax(self.logits(images_BHW3), (images_BHW3.shape[1], images_BHW3.shape[2]))

    def predict(self, image: ImageLike, probabilities: bool = False) -> Prediction:
        """The class of every pixel of an image: a file, a PIL image, or height x width x 3 of uint8."""
        pixels = self.images.pixels(image)
        size = (pixels.shape[0], pixels.shape[1])
        logits_BKhw = self.logits(self.images.resized(pixels)[None])
        scores = self._softmax(logits_BKhw, size)[0] if probabilities else None
        ids = answer_from(logits_BKhw[0], size, logits=True).ids
        return Prediction(ids, self.classes, self.colours, pixels, scores)

    def _softmax(self, logits_BKhw: np.ndarray, size: tuple[int, int]) -> np.ndarray:
        return softmax(np.stack([resized_rows(each, size, slice(None)) for each in logits_BKhw]))


def open_session(content: bytes, device: str = "auto", name: str = "The file", threads: int = 0) -> Any:
    """An onnxruntime session, on CUDA if there is one and it is wanted; 0 `threads` lets it choose."""
    runtime = onnx_package("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = QUIET, threads
    cuda = "CUDAExecutionProvider"
    if device not in ("auto", "cpu", "cuda"):
        raise UserError(f"An ONNX file runs on auto, cpu or cuda, not on '{device}'.")
    if device == "cuda" and cuda not in runtime.get_available_providers():
        raise UserError("This onnxruntime has no CUDA: pip install onnxruntime-gpu, or use the device cpu.")
    wanted = ["CPUExecutionProvider"] if device == "cpu" else [cuda, "CPUExecutionProvider"]
    providers = [each for each in wanted if each in runtime.get_available_providers()]
    check_seal(content, name)
    try:
        with TemporaryDirectory() as empty:  # where weights outside the file are looked for: there are none
            options.add_session_config_entry(OUTSIDE, empty)
            return runtime.InferenceSession(content, options, providers=providers)
    except Exception as error:  # onnxruntime has a class of its own for each kind of damage
        raise UserError(f"{name} is not an ONNX file that onnxruntime can run: {reason_of(error)}") from error
