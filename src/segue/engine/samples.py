"""Pictures of a few test images, written into the run folder after each step for the report to show."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from segue.core.palette import class_colours, hexadecimal
from segue.core.records import atomic_file, write_json
from segue.core.scenario import Scenario
from segue.data.batches import Batch
from segue.data.images import mask_picture
from segue.methods.base import Method
from segue.models.classifier import close_background

TINY = 1e-12
WARM = np.array([(20, 10, 30), (101, 21, 110), (212, 72, 66), (250, 193, 39), (252, 255, 164)])
COLD = np.array([(20, 10, 30), (24, 48, 120), (36, 110, 190), (90, 180, 230), (200, 240, 255)])
"""colours from zero to the strongest, evenly spaced: violet to yellow, and blue for negative values"""


def choose_samples(scenario: Scenario, present: np.ndarray, candidates: np.ndarray, count: int) -> np.ndarray:
    """Test images that show the point: those with classes of the most steps, then with the most classes."""
    groups = np.stack([present[candidates][:, list(group)].any(1) for group in scenario.groups], axis=1).sum(
        1
    )
    classes = present[candidates][:, list(scenario.classes.ids)].sum(1)
    ranked = np.lexsort((np.arange(len(candidates)), -classes, -groups))
    return np.sort(candidates[ranked[:count]])


def write_inputs(folder: Path, batches: Sequence[Batch], scenario: Scenario) -> None:
    """Images and ground truth, once per run; labels are those of the last step."""
    pairs = (pair for b in batches for pair in zip(b.images.cpu(), b.labels.cpu(), strict=True))
    for number, (image, labels) in enumerate(pairs):
        _write(folder, f"{number}/input.png", Image.fromarray(image.permute(1, 2, 0).numpy()))
        _write(folder, f"{number}/truth.png", _indexed(labels))
    names, shipped = scenario.channel_names(scenario[-1]), scenario.classes.colours
    index: dict[str, object] = {
        "samples": [{"key": key} for b in batches for key in b.keys],
        "classes": names,
    }
    if shipped is not None:
        index["colours"] = [hexadecimal(colour) for colour in class_colours(scenario[-1].seen, shipped)]
    write_json(folder / "index.json", index, folder.parent)


@torch.inference_mode()
def write_predictions(
    folder: Path, method: Method, batches: Sequence[Batch], step: int, closed: bool = False
) -> None:
    """Prediction of every sample after a step, and its attention maps laid over the input."""
    method.eval()
    first = 0
    for batch in batches:
        _write_batch(folder, method, batch, step, closed, first)
        first += len(batch.images)


def _write_batch(folder: Path, method: Method, batch: Batch, step: int, closed: bool, first: int) -> None:
    """`first` is the number of the batch's first sample."""
    logits = method.predict(batch.images)
    predicted = (close_background(logits) if closed else logits).argmax(1).cpu()
    maps = {
        name: values.float().cpu().numpy() for name, values in method.attention_maps(batch.images).items()
    }
    for place, (image, labels) in enumerate(zip(batch.images.cpu(), predicted, strict=True)):
        number = first + place
        _write(folder, f"{number}/step{step}.png", _indexed(labels))
        photo = Image.fromarray(image.permute(1, 2, 0).numpy())
        for name, values in maps.items():
            peak = float(np.abs(values[place]).max())
            about = PngInfo()
            if name != "energy":  # what the strongest colour stands for; energy has no unit
                about.add_text("peak", f"{peak:.2g}")
            picture = overlay(photo, values[place] / max(peak, TINY))
            _write(folder, f"{number}/step{step}-{name}.png", picture, about)


def overlay(photo: Image.Image, level_hw: np.ndarray) -> Image.Image:
    """A map in [-1, 1] as colours over a photo: warm where it is high, blue where it is negative."""
    size = photo.size
    level = np.asarray(Image.fromarray(level_hw.astype(np.float32)).resize(size, Image.Resampling.BILINEAR))
    strength = np.abs(level)[..., None]
    stops = np.linspace(0, 1, len(WARM))
    warm, cold = (
        np.stack([np.interp(strength[..., 0], stops, channel) for channel in colours.T], axis=-1)
        for colours in (WARM, COLD)
    )
    colour = np.where(level[..., None] < 0, cold, warm)
    weight = 0.25 + 0.55 * strength  # what is near zero stays mostly photo
    mixed = (1 - weight) * np.asarray(photo, dtype=np.float64) + weight * colour
    return Image.fromarray(mixed.round().astype(np.uint8))


def _indexed(labels: torch.Tensor) -> Image.Image:
    return mask_picture(labels.to(torch.uint8).numpy())


def _write(folder: Path, name: str, picture: Image.Image, about: PngInfo | None = None) -> None:
    with atomic_file(folder / name, root=folder.parent) as file:
        picture.save(file, format="PNG", pnginfo=about)
