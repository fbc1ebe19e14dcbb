"""Paired transforms of image and labels (torchvision v2), uint8 in and out; the model normalises.

Training: random resized crop by area (a crop larger than the image is rejected, so it never zooms out), then
a horizontal flip. A share of the crops may be placed on new classes, which small ones need.
Testing: shorter side to the crop size, centre crop; scores are taken on that crop. Or whole images.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate
from torchvision import tv_tensors
from torchvision.transforms import InterpolationMode, v2
from torchvision.transforms.v2 import functional

from segue.data.input_size import within_bounds


class Picture(tv_tensors.Image):
    """An image that is resized in whole numbers, to the same pixels on every processor.

    torchvision does so only where it is fastest, and rounds differently elsewhere: other crops, other losses.
    """


@functional.register_kernel(functional.resize, Picture)
def _resize_picture(picture: Tensor, size: list[int], **_: Any) -> Picture:
    image = picture.as_subclass(Tensor)
    height, width = image.shape[-2:]
    if len(size) == 1:  # of the shorter side
        size = [size[0] * height // min(height, width), size[0] * width // min(height, width)]
    return Picture(interpolate(image[None], size, mode="bilinear", antialias=True)[0])


@functional.register_kernel(functional.resized_crop, Picture)
def _resized_crop_picture(
    picture: Tensor, top: int, left: int, height: int, width: int, size: list[int], **_: Any
) -> Picture:
    return _resize_picture(functional.crop_image(picture.as_subclass(Tensor), top, left, height, width), size)


class Labels(tv_tensors.Mask):
    """A mask that is resized about the centres of its pixels, as PIL does it and as the image is resized.

    torchvision's own masks take the pixel at the corner, which lies half a new pixel beside the image.
    """


@functional.register_kernel(functional.resize, Labels)
def _resize(labels: Tensor, size: list[int], max_size: int | None = None, **_: Any) -> Labels:
    resized = functional.resize_image(
        labels.as_subclass(Tensor)[None], size, InterpolationMode.NEAREST_EXACT, max_size
    )
    return Labels(resized[0])


@functional.register_kernel(functional.resized_crop, Labels)
def _resized_crop(
    labels: Tensor, top: int, left: int, height: int, width: int, size: list[int], **_: Any
) -> Labels:
    return _resize(functional.crop_image(labels.as_subclass(Tensor), top, left, height, width), size)


@dataclass(frozen=True)
class CropOn:
    """Labels that a share of the crops is placed on."""

    labels: range
    share: float


class PlacedCrop(v2.RandomResizedCrop):
    """A random resized crop of which a share contains a pixel of some labels, where the image has one.

    First a label is drawn, then one of its pixels: a small class is met as often as a large one.
    """

    def __init__(self, on: CropOn, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.on = on

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        params = super().make_params(flat_inputs)
        if torch.rand(1).item() >= self.on.share:
            return params
        labels = next(each for each in flat_inputs if isinstance(each, Labels)).as_subclass(Tensor)
        counts = torch.bincount(labels.flatten(), minlength=256).tolist()
        there = [label for label in self.on.labels if counts[label]]
        if not there:
            return params
        pixels = (labels == there[_below(len(there))]).nonzero()
        row, column = pixels[_below(len(pixels))].tolist()
        top = _start_around(row, params["height"], labels.shape[0])
        return params | {"top": top, "left": _start_around(column, params["width"], labels.shape[1])}


def _below(end: int) -> int:
    return int(torch.randint(end, ()).item())


def _start_around(position: int, length: int, whole: int) -> int:
    """A random start of a stretch inside the whole that contains a position."""
    first, last = max(0, position - length + 1), min(position, whole - length)
    return first + _below(last - first + 1)


def train_transform(crop: int, scale: tuple[float, float], on: CropOn | None = None) -> v2.Transform:
    settings: dict[str, Any] = {
        "scale": scale,
        "ratio": (3 / 4, 4 / 3),
        "interpolation": InterpolationMode.BILINEAR,
        "antialias": True,
    }
    cropped = v2.RandomResizedCrop(crop, **settings) if on is None else PlacedCrop(on, crop, **settings)
    return v2.Compose([cropped, v2.RandomHorizontalFlip(0.5)])


class WholeImage(v2.Transform):
    """An image as a network sees it whole: at its own size, within bounds."""

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        return {"size": list(within_bounds(*flat_inputs[0].shape[-2:]))}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        if list(inpt.shape[-2:]) == params["size"]:
            return inpt
        return self._call_kernel(functional.resize, inpt, params["size"])


def test_transform(crop: int | None) -> v2.Transform:
    """None: whole images, of different sizes."""
    if crop is None:
        return WholeImage()
    return v2.Compose(
        [v2.Resize(crop, interpolation=InterpolationMode.BILINEAR, antialias=True), v2.CenterCrop(crop)]
    )


def apply(transform: v2.Transform, image: np.ndarray, *maps: np.ndarray) -> tuple[Tensor, ...]:
    """Transform an image and its maps, such as labels, together; maps are resized by nearest neighbour."""
    together = transform(
        Picture(torch.from_numpy(np.require(image.transpose(2, 0, 1), requirements="CW"))),
        *(Labels(torch.from_numpy(np.require(each, requirements="CW"))) for each in maps),
    )
    return tuple(tensor.as_subclass(Tensor) for tensor in together)
