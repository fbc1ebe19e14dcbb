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
from typing import Any

import numpy as np
from PIL import Image

from segue.core.classes import Colour
from segue.core.errors import UserError, reason
from segue.core.palette import distinct_colours, flat_palette
from segue.report.comparison import Comparison, Entry

MAX_SIDE = 256
"""longest side of a stored picture: twice what the page shows, for dense screens"""
MAX_COLUMNS = 6
"""steps per row; of a longer split some are left out, never the first and the last"""


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


def read_colours(comparison: Comparison) -> list[Colour]:
    """The colour of each class: the data set's own if a run has it, else one that can be told apart."""
    count = len(comparison.classes) - 1
    for entry in comparison.entries:
        for run in entry.runs:
            stored = shipped_colours(run.folder)
            if stored is not None and len(stored) == count:
                return stored
    return list(distinct_colours(count))


def shipped_colours(folder: Path) -> list[Colour] | None:
    """The data set's own colours of a run's classes, in order of arrival, if it ships any."""
    path = folder / "samples" / "index.json"
    stored = _read_index(path).get("colours") if path.is_file() else None
    return [_colour(text, path) for text in stored] if isinstance(stored, list) else None


def _colour(text: object, path: Path) -> Colour:
    try:
        red, green, blue = bytes.fromhex(str(text).removeprefix("#"))
    except ValueError as error:
        raise UserError(f"{path} names a colour {text!r}; colours are like #0072b2.") from error
    return red, green, blue


def read_samples(comparison: Comparison, colours: Sequence[Colour]) -> list[Sample]:
    """All sample images of the first run of each row that has any."""
    palette = flat_palette(colours)
    folders: dict[str, list[tuple[Entry, Path]]] = {}
    for entry in comparison.entries:
        for key, folder in _sample_folders(entry).items():
            folders.setdefault(key, []).append((entry, folder))
    steps = shown_steps(comparison.num_steps)
    return [_sample(key, found, steps, palette) for key, found in folders.items()]


def _sample_folders(entry: Entry) -> dict[str, Path]:
    """Where the pictures of each sample lie, by the key of the test image."""
    for run in entry.runs:
        index = run.folder / "samples" / "index.json"
        if index.is_file():
            keys = [sample["key"] for sample in _read_index(index)["samples"]]
            return {key: index.parent / str(position) for position, key in enumerate(keys)}
    return {}


def _read_index(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        samples = [{"key": str(sample["key"])} for sample in document["samples"]]
        return {"samples": samples, "colours": document.get("colours")}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{path} is not an index of sample pictures: {error!r}.") from error


def _sample(
    key: str, found: Sequence[tuple[Entry, Path]], steps: Sequence[int], palette: Sequence[int]
) -> Sample:
    photo = next(filter(None, (_open(place / "input.png", "RGB") for _, place in found)), None)
    truth = next(filter(None, (_open(place / "truth.png", None) for _, place in found)), None)
    photo = photo and fitted(photo, Image.Resampling.BILINEAR)
    return Sample(
        key=key,
        input=picture(photo, f"{key}: input"),
        truth=picture(truth and coloured(truth, palette), f"{key}: ground truth"),
        rows=tuple(row for entry, place in found for row in _rows(entry, place, steps, palette)),
    )


def _rows(entry: Entry, place: Path, steps: Sequence[int], palette: Sequence[int]) -> Iterator[PictureRow]:
    """The predictions of a method and, if it has any, its maps over the photo."""
    # The single step of Joint stands beside the last step of the others.
    files = {steps[-1]: "step0"} if entry.offline else {step: f"step{step}" for step in steps}

    def cells(label: str, images: dict[int, Image.Image | None]) -> tuple[Picture | None, ...]:
        return tuple(picture(images.get(step), f"{label}, step {step}") for step in steps)

    labels = {step: _open(place / f"{name}.png", None) for step, name in files.items()}
    drawn = {step: image and coloured(image, palette) for step, image in labels.items()}
    yield PictureRow(entry.label, cells(entry.label, drawn))
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


def coloured(indices: Image.Image, palette: Sequence[int]) -> Image.Image:
    """A label picture in the colours of the legend, whatever palette its file has."""
    picture = fitted(indices, Image.Resampling.NEAREST)
    picture.putpalette(palette)
    return picture


def fitted(image: Image.Image, resample: Image.Resampling) -> Image.Image:
    factor = min(1.0, MAX_SIDE / max(image.size))
    return image.resize([max(1, round(side * factor)) for side in image.size], resample)


def _open(path: Path, mode: str | None) -> Image.Image | None:
    """A picture, or None if there is no such file; `mode` None asks for a label picture."""
    if not path.is_file():
        return None
    try:
        with Image.open(path, formats=("PNG",)) as image:  # PIL's other decoders may start programs
            image.load()
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UserError(f"{path} is not a readable picture (PNG): {reason(error)}.") from error
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
