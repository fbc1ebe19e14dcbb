"""Pictures of a few test images, written into the run folder after each step for the report to show."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from segue.core.classes import voc_palette
from segue.core.records import atomic_file, write_json
from segue.core.scenario import Scenario
from segue.data.steps import Batch
from segue.methods.base import Method


def choose_samples(scenario: Scenario, present: np.ndarray, candidates: np.ndarray, count: int) -> np.ndarray:
    """Test images that show the point: those with classes of the most steps, then with the most classes."""
    groups = np.stack([present[candidates][:, list(group)].any(1) for group in scenario.groups], axis=1).sum(
        1
    )
    classes = present[candidates][:, list(scenario.classes.ids)].sum(1)
    ranked = np.lexsort((np.arange(len(candidates)), -classes, -groups))
    return np.sort(candidates[ranked[:count]])


def write_inputs(folder: Path, batch: Batch, class_names: tuple[str, ...]) -> None:
    """Images and ground truth, once per run; labels are those of the last step."""
    for number, (image, labels) in enumerate(zip(batch.images.cpu(), batch.labels.cpu(), strict=True)):
        _write(folder / str(number) / "input.png", Image.fromarray(image.permute(1, 2, 0).numpy()))
        _write(folder / str(number) / "truth.png", _indexed(labels))
    write_json(
        folder / "index.json", {"samples": [{"key": key} for key in batch.keys], "classes": class_names}
    )


@torch.inference_mode()
def write_predictions(folder: Path, method: Method, batch: Batch, step: int) -> None:
    """Prediction and attention maps of every sample after a step."""
    method.eval()
    predicted = method.predict(batch.images).argmax(1).cpu()
    maps = {name: (values * 255).byte().cpu() for name, values in method.attention_maps(batch.images).items()}
    for number, labels in enumerate(predicted):
        _write(folder / str(number) / f"step{step}.png", _indexed(labels))
        for name, values in maps.items():
            _write(folder / str(number) / f"step{step}-{name}.png", Image.fromarray(values[number].numpy()))


def _indexed(labels: torch.Tensor) -> Image.Image:
    picture = Image.fromarray(labels.to(torch.uint8).numpy()).convert("P")
    picture.putpalette(voc_palette())
    return picture


def _write(path: Path, picture: Image.Image) -> None:
    with atomic_file(path) as file:
        picture.save(file, format="PNG")
