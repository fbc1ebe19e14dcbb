"""Pictures of the sample images: input, ground truth, predictions step by step, attention over the input.

They come from the `samples` folder of a run, which may be missing in part or as a whole. Every picture
becomes a data URI, so that the page needs no second file.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from segue.core.classes import IGNORE, voc_palette
from segue.core.errors import UserError
from segue.report.comparison import Comparison, Entry

MAX_SIDE = 256
"""longest side of a stored picture: twice what the page shows, for dense screens"""
MAX_COLUMNS = 6
"""steps per row; of a longer split some are left out, never the first and the last"""

PALETTE = [232, 235, 236, *voc_palette()[3 : 3 * IGNORE], 255, 255, 255]
"""the colours of VOC, but a light background (dark classes vanish on black) and white for not scored"""


@dataclass(frozen=True)
class Picture:
    uri: str
    coarse: bool
    """few pixels: enlarged in blocks and not smoothed"""
    text: str
    """alternative text"""
    note: str = ""
    """shown below it"""


@dataclass(frozen=True)
class PictureRow:
    label: str
    cells: tuple[Picture | None, ...]
    kind: str = ""
    """name of the maps that the row shows instead of predictions"""


@dataclass(frozen=True)
class Sample:
    """One test image as all methods see it."""

    key: str
    input: Picture | None
    truth: Picture | None
    rows: tuple[PictureRow, ...]


def shown_steps(num_steps: int) -> list[int]:
    """The steps that have a column of pictures."""
    return sorted({round(step) for step in np.linspace(0, num_steps - 1, min(num_steps, MAX_COLUMNS))})


def read_samples(comparison: Comparison) -> list[Sample]:
    """All sample images of the first run of each row that has any."""
    folders: dict[str, list[tuple[Entry, Path]]] = {}
    for entry in comparison.entries:
        for key, folder in _sample_folders(entry).items():
            folders.setdefault(key, []).append((entry, folder))
    steps = shown_steps(comparison.num_steps)
    return [_sample(key, found, steps) for key, found in folders.items()]


def _sample_folders(entry: Entry) -> dict[str, Path]:
    """Where the pictures of each sample lie, by the key of the test image."""
    for run in entry.runs:
        index = run.folder / "samples" / "index.json"
        if index.is_file():
            try:
                document = json.loads(index.read_text(encoding="utf-8"))
                keys = [str(sample["key"]) for sample in document["samples"]]
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise UserError(f"{index} is not an index of sample pictures: {error!r}.") from error
            return {key: index.parent / str(position) for position, key in enumerate(keys)}
    return {}


def _sample(key: str, found: Sequence[tuple[Entry, Path]], steps: Sequence[int]) -> Sample:
    photo = next(filter(None, (_open(place / "input.png", "RGB") for _, place in found)), None)
    truth = next(filter(None, (_open(place / "truth.png", None) for _, place in found)), None)
    photo = photo and fitted(photo, Image.Resampling.BILINEAR)
    return Sample(
        key=key,
        input=picture(photo, f"{key}: input"),
        truth=picture(truth and coloured(truth), f"{key}: ground truth"),
        rows=tuple(row for entry, place in found for row in _rows(entry, place, steps)),
    )


def _rows(entry: Entry, place: Path, steps: Sequence[int]) -> Iterator[PictureRow]:
    """The predictions of a method and, if it has any, its maps over the photo."""
    # The single step of Joint stands beside the last step of the others.
    files = {steps[-1]: "step0"} if entry.offline else {step: f"step{step}" for step in steps}

    def cells(label: str, images: dict[int, Image.Image | None]) -> tuple[Picture | None, ...]:
        return tuple(picture(images.get(step), f"{label}, step {step}") for step in steps)

    labels = {step: _open(place / f"{name}.png", None) for step, name in files.items()}
    yield PictureRow(entry.label, cells(entry.label, {k: x and coloured(x) for k, x in labels.items()}))
    for kind in ("energy", "attention"):
        maps = {step: _open(place / f"{name}-{kind}.png", "RGB") for step, name in files.items()}
        if any(maps.values()):
            label = f"{entry.label} {kind}"
            yield PictureRow(label, cells(label, {k: x and _fitted_map(x) for k, x in maps.items()}), kind)


def _fitted_map(image: Image.Image) -> Image.Image:
    """A map of the right size that still knows what its strongest colour stands for."""
    small = fitted(image, Image.Resampling.BILINEAR)
    small.info["peak"] = image.info.get("peak")
    return small


def coloured(indices: Image.Image) -> Image.Image:
    """A label picture in the colours of the legend, whatever palette its file has."""
    picture = fitted(indices, Image.Resampling.NEAREST)
    picture.putpalette(PALETTE)
    return picture


def fitted(image: Image.Image, resample: Image.Resampling) -> Image.Image:
    factor = min(1.0, MAX_SIDE / max(image.size))
    return image.resize([max(1, round(side * factor)) for side in image.size], resample)


def _open(path: Path, mode: str | None) -> Image.Image | None:
    """A picture, or None if there is no such file; `mode` None asks for a label picture."""
    if not path.is_file():
        return None
    try:
        with Image.open(path) as image:
            image.load()
    except (OSError, SyntaxError) as error:
        raise UserError(f"{path} is not a readable picture: {error}.") from error
    if mode is None and image.mode not in ("P", "L"):
        raise UserError(f"{path} should hold one label per pixel (mode P), but its mode is {image.mode}.")
    peak = image.info.get("peak")
    image = image.convert(mode) if mode else image
    image.info["peak"] = peak  # a conversion may drop it
    return image


def picture(image: Image.Image | None, text: str) -> Picture | None:
    if image is None:
        return None
    buffer = io.BytesIO()
    image.save(buffer, format="PNG", optimize=True)
    uri = "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
    peak = image.info.get("peak")
    note = f"up to {peak}" if peak else ""
    return Picture(uri, coarse=max(image.size) <= MAX_SIDE // 2, text=text, note=note)
