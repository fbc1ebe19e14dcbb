"""Tiny models of which the outputs alone are known: ONNX graphs and TorchScript files, made on the spot."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

NAMES = ("background", "cat", "dog")
MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.3, 0.25)
WEIGHT = np.array([[0.0, 0.0, 0.0], [4.0, -2.0, -2.0], [-2.0, 4.0, -2.0]], dtype=np.float32)
"""rows of a classifier of colours: background, red is cat, green is dog"""
BIAS = np.array([3.0, 0.0, 0.0], dtype=np.float32)


def logits_of(images_B3HW: torch.Tensor) -> torch.Tensor:
    """What the models below say of images from 0 to 255."""
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) * 255 for values in (MEAN, STD))
    x = (images_B3HW.float() - mean) / std
    return torch.nn.functional.conv2d(x, torch.tensor(WEIGHT)[:, :, None, None], torch.tensor(BIAS))


def write_onnx(
    path: Path,
    size: tuple[int, int] | None = None,
    batch: int | None = None,
    last: bool = False,
    ending: str = "",
    rows: int = 3,
    meta: dict[str, Any] | None = None,
) -> Path:
    """A 1 x 1 convolution; `last`: channels come last; `ending`: Softmax, Sigmoid or ArgMax."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    helper, floats = onnx.helper, onnx.TensorProto.FLOAT
    sides = list(size) if size else ["height", "width"]
    shape = [batch or "batch", *([*sides, 3] if last else [3, *sides])]
    nodes, now = [], "image"
    if last:
        nodes.append(helper.make_node("Transpose", [now], ["first"], perm=[0, 3, 1, 2]))
        now = "first"
    nodes.append(helper.make_node("Conv", [now, "weight", "bias"], ["scores"]))
    now = "scores"
    if ending:
        settings = {"axis": 1} if ending != "Sigmoid" else {}
        nodes.append(helper.make_node(ending, [now], ["ended"], **settings))
        now = "ended"
    if last:
        nodes.append(helper.make_node("Transpose", [now], ["answer"], perm=[0, 2, 3, 1]))
        now = "answer"
    whole = ending == "ArgMax"
    out_shape = [batch or "batch", *([*sides, rows] if last else [1 if whole else rows, *sides])]
    graph = helper.make_graph(
        nodes,
        "colours",
        [helper.make_tensor_value_info("image", floats, shape)],
        [helper.make_tensor_value_info(now, onnx.TensorProto.INT64 if whole else floats, out_shape)],
        [
            onnx.numpy_helper.from_array(WEIGHT[:rows, :, None, None], "weight"),
            onnx.numpy_helper.from_array(BIAS[:rows], "bias"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    told = {
        key: value if isinstance(value, str) else json.dumps(value) for key, value in (meta or {}).items()
    }
    helper.set_model_props(model, told)
    path.write_bytes(model.SerializeToString())
    return path


class Colours(nn.Module):
    """The same as a torch module."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)
        self.conv.weight.data.copy_(torch.tensor(WEIGHT)[:, :, None, None])
        self.conv.bias.data.copy_(torch.tensor(BIAS))

    def forward(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"out": self.conv(images)}


def write_script(path: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.script(Colours()).save(str(path))
    return path


def write_birds(root: Path, count: int = 8) -> Path:
    """Pictures with a red, a green and a blue square each; only the blue ones, birds, are labelled."""
    generator = np.random.default_rng(0)
    for subset, number in (("train", count), ("val", 3)):
        for index in range(number):
            image = generator.integers(0, 40, (32, 32, 3), dtype=np.uint8)
            mask = np.zeros((32, 32), dtype=np.uint8)
            corners = [(0, 0), (0, 16), (16, 0), (16, 16)]
            places = [corners[place] for place in generator.permutation(4)]
            for colour, (top, left) in zip(range(3), places, strict=False):
                image[top + 2 : top + 14, left + 2 : left + 14, colour] = 230
            top, left = places[2]
            mask[top + 2 : top + 14, left + 2 : left + 14] = 1
            for name, picture in (("images", image), ("masks", mask)):
                (root / name / subset).mkdir(parents=True, exist_ok=True)
                Image.fromarray(picture).save(root / name / subset / f"{subset}{index}.png")
    (root / "classes.txt").write_text("background\nbird\n")
    return root
