"""What a client gets: a mask as PNG, areas by class name, or all that the page shows."""

from __future__ import annotations

import base64
import io
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from segue.core.palette import flat_palette, hexadecimal
from segue.data.images import mask_picture
from segue.deploy.serve.predictors import Served, Size

VIEW_SIDE = 1600
"""length of the longer side of what the page shows, in pixels"""
CONFIDENCE_STEP = 4
"""distance of the pixels whose confidence the page gets"""
FAST = 1
"""zlib level: masks are flat, so that more work saves little"""


@dataclass(frozen=True)
class Answer:
    """What a model says of an image."""

    served: Served
    ids: np.ndarray
    """class index of each pixel"""
    confidence: np.ndarray
    """probability of that class"""

    def areas(self) -> dict[str, dict[str, float]]:
        """Pixels, share of the image and mean confidence of each class that is there, by name."""
        count = len(self.served.predictor.classes)
        flat = self.ids.reshape(-1)
        pixels = np.bincount(flat, minlength=count)
        sure = np.bincount(flat, weights=self.confidence.reshape(-1), minlength=count)
        return {
            self.served.predictor.classes[index]: {
                "pixels": int(pixels[index]),
                "share": round(float(pixels[index] / flat.size), 6),
                "confidence": round(float(sure[index] / pixels[index]), 4),
            }
            for index in np.flatnonzero(pixels)
        }

    def mask(self) -> bytes:
        """The class indices as PNG, with the classes' colours as its palette."""
        file = io.BytesIO()
        picture = mask_picture(self.ids, flat_palette(self.served.predictor.colours[1:]))
        picture.save(file, format="PNG", compress_level=FAST)
        return file.getvalue()

    def document(self, mask: bool) -> dict[str, Any]:
        """Areas, and the mask in base64 if it is asked for."""
        height, width = self.ids.shape
        found = {"model": self.served.name, "width": width, "height": height, "areas": self.areas()}
        return {**found, "mask": _text(self.mask())} if mask else found

    def view(self) -> dict[str, Any]:
        """For the page: indices and confidence as compressed bytes; canvases may alter what they hold."""
        little = self.ids.astype(self.ids.dtype.newbyteorder("<"))
        sparse = self.confidence[::CONFIDENCE_STEP, ::CONFIDENCE_STEP]
        return {
            "name": self.served.name,
            "ids": _text(zlib.compress(little.tobytes(), FAST)),
            "bytes": self.ids.dtype.itemsize,
            "confidence": _text(zlib.compress((sparse * 255).round().astype(np.uint8).tobytes(), FAST)),
            "step": CONFIDENCE_STEP,
            "areas": self.areas(),
        }


def view_size(size: Size) -> Size:
    """The size at which the page shows an image."""
    factor = min(1.0, VIEW_SIDE / max(size))
    return max(1, round(factor * size[0])), max(1, round(factor * size[1]))


def photo(pixels: np.ndarray) -> str:
    """An image as the page shows it: upright and small, JPEG in base64."""
    height, width = view_size((pixels.shape[0], pixels.shape[1]))
    file = io.BytesIO()
    shown = Image.fromarray(pixels)
    if shown.size != (width, height):
        shown = shown.resize((width, height), Image.Resampling.BILINEAR, reducing_gap=2.0)
    shown.save(file, format="JPEG", quality=88)
    return _text(file.getvalue())


def classes_document(served: Served) -> dict[str, Any]:
    """Names and colours of a model's classes, by index."""
    predictor = served.predictor
    return {
        "name": served.name,
        "classes": [
            {"id": index, "name": name, "colour": hexadecimal(colour)}
            for index, (name, colour) in enumerate(zip(predictor.classes, predictor.colours, strict=True))
        ],
    }


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")
