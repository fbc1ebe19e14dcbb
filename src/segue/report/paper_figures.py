"""Figures of the paper from what runs have stored: pictures of test images, curves, and bars of classes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from segue.core.classes import IGNORE
from segue.core.errors import UserError, reason
from segue.core.metrics import iou, mean
from segue.core.palette import distinct_colours, flat_palette
from segue.core.records import RunRecord
from segue.report.charts import COLOURS, Chart, house_style, look, new_figure, shortened
from segue.report.comparison import Stat
from segue.report.pictures import shipped_colours
from segue.report.tables import MEANS

CELL, HEAD = 120, 24
"""points of a picture in a figure, and of the words above and below it"""


@dataclass(frozen=True)
class Tile:
    """A picture with the words below it."""

    picture: np.ndarray
    words: str = ""


@dataclass(frozen=True)
class Samples:
    """The test images that a run keeps pictures of."""

    run: RunRecord
    keys: tuple[str, ...]

    def labels(self, number: int, name: str) -> np.ndarray:
        return np.asarray(_open(self.run.folder / "samples" / str(number) / f"{name}.png"))

    def photo(self, number: int, name: str = "input") -> np.ndarray | None:
        path = self.run.folder / "samples" / str(number) / f"{name}.png"
        return np.asarray(_open(path).convert("RGB")) if path.is_file() else None

    def score(self, number: int, step: int) -> float:
        """Mean IoU of one image in percent, over the classes that it shows after a step, with background."""
        truth, predicted = self.labels(number, "truth"), self.labels(number, f"step{step}")
        channels = len(self.run.steps[step].classes)
        valid = (truth != IGNORE) & (truth < channels)
        pairs = truth[valid].astype(np.int64) * channels + predicted[valid]
        return 100 * mean(iou(np.bincount(pairs, minlength=channels**2).reshape(channels, channels)))

    @property
    def last(self) -> int:
        return len(self.run.steps) - 1


def read_samples(run: RunRecord) -> Samples | None:
    """None if the run has kept no pictures."""
    path = run.folder / "samples" / "index.json"
    if not path.is_file():
        return None
    try:
        keys = tuple(str(sample["key"]) for sample in json.loads(path.read_text(encoding="utf-8"))["samples"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f"{path} does not list the sample images: {error}.") from error
    return Samples(run, keys)


def chosen_images(rows: Mapping[str, Samples], count: int, names: Sequence[str] = ()) -> list[int]:
    """Images by name; else those in which CAF gains most over the best of the others."""
    first = next(iter(rows.values()))
    if unknown := [name for name in names if name not in first.keys]:
        raise UserError(
            f"{first.run.folder} kept no pictures of '{unknown[0]}', but of {', '.join(first.keys)}."
        )
    if names:
        return [first.keys.index(name) for name in names]
    ours = rows.get("Ours", first)
    others = [samples for samples in rows.values() if samples is not ours]

    def gain(number: int) -> float:
        own = ours.score(number, ours.last)
        best = max((other.score(number, other.last) for other in others), default=0.0)
        return own - best if not math.isnan(own - best) else -math.inf

    return sorted(range(len(first.keys)), key=lambda number: -gain(number))[:count]


def picture_figure(
    title: str, show: str, rows: Mapping[str, Samples], count: int, names: Sequence[str] = ()
) -> Chart:
    """A row of pictures for each image: the input, what the methods say, the truth."""
    lines: list[dict[str, Tile]] = []
    for number in chosen_images(rows, count, names):
        lines += (
            _over_steps(number, show, rows)
            if show in ("steps", "attention over steps")
            else [_side_by_side(number, show, rows)]
        )
    return _grid(title, lines)


def _side_by_side(number: int, show: str, rows: Mapping[str, Samples]) -> dict[str, Tile]:
    first = next(iter(rows.values()))
    palette = _palette(first)
    line = {"image": Tile(_present(first.photo(number)), shortened(first.keys[number]))}
    if show == "attention" and (map_ := _attention(rows.get("Ours", first), number)) is not None:
        line["attention"] = Tile(map_)
    for name, samples in rows.items():
        score = samples.score(number, samples.last)
        line[name] = Tile(palette[samples.labels(number, f"step{samples.last}")], f"IoU {score:.1f}")
    line["truth"] = Tile(palette[first.labels(number, "truth")])
    return line


def _over_steps(number: int, show: str, rows: Mapping[str, Samples]) -> list[dict[str, Tile]]:
    lines = []
    for name, samples in rows.items():
        palette = _palette(samples)
        line = {"image": Tile(_present(samples.photo(number)), f"{name}, {shortened(samples.keys[number])}")}
        for step in range(samples.last + 1):
            words = f"IoU {samples.score(number, step):.1f}"
            picture = palette[samples.labels(number, f"step{step}")]
            if show == "attention over steps":
                picture = _present(_attention(samples, number, step), picture)
            line[f"step {step}"] = Tile(picture, words)
        line["truth"] = Tile(palette[samples.labels(number, "truth")])
        lines.append(line)
    return lines


def _attention(samples: Samples, number: int, step: int | None = None) -> np.ndarray | None:
    """The first attention map that was kept after a step."""
    step = samples.last if step is None else step
    folder = samples.run.folder / "samples" / str(number)
    for path in sorted(folder.glob(f"step{step}-*.png")):
        return np.asarray(_open(path).convert("RGB"))
    return None


@house_style()
def _grid(title: str, lines: Sequence[Mapping[str, Tile]]) -> Chart:
    columns = list(dict.fromkeys(name for line in lines for name in line))
    figure = new_figure(CELL * len(columns), (CELL + HEAD) * len(lines) + HEAD)
    all_axes = figure.subplots(len(lines), len(columns), squeeze=False)
    for row, line in enumerate(lines):
        for column, name in enumerate(columns):
            axes = all_axes[row][column]
            axes.set_axis_off()
            if row == 0:
                axes.set_title(name, fontsize=11, loc="center", pad=4)
            if name in line:
                axes.imshow(line[name].picture, interpolation="nearest")
                axes.text(0.5, -0.04, line[name].words, transform=axes.transAxes, fontsize=9,
                          horizontalalignment="center", verticalalignment="top")  # fmt: skip
    told = "; ".join(f"{tile.words}" for line in lines for tile in line.values() if tile.words)
    return Chart("pictures", title, f"{title}: {told}", figure)


@house_style()
def sensitivity_figure(title: str, panels: Mapping[str, Mapping[float, Sequence[Stat]]]) -> Chart:
    """Old, new and all over a weight; a panel for each weight."""
    figure = new_figure(400 * len(panels), 320)
    all_axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (name, points) in zip(all_axes, panels.items(), strict=True):
        weights = sorted(points)
        axes.set_title(name)
        axes.set_xscale("log")
        axes.set_xticks(weights, [f"{weight:g}" for weight in weights])
        axes.minorticks_off()
        axes.set_xlabel("weight")
        axes.set_ylabel("mean IoU, percent")
        for index, mean_name in enumerate(MEANS):
            values = [points[weight][index] for weight in weights]
            means, spread = [value.mean for value in values], [value.std for value in values]
            axes.errorbar(weights, means, spread, label=mean_name, **look(index))
        axes.set_ylim(bottom=0)
        axes.legend(fontsize=11)
    return Chart("sensitivity", title, f"{title}: {', '.join(panels)}", figure)


@house_style()
def distribution_figure(
    title: str, panels: Mapping[str, Sequence[tuple[int, Sequence[tuple[str, int, bool]]]]]
) -> Chart:
    """For each mode and step: how many of its images show each class; new classes are coloured."""
    steps = max(map(len, panels.values()))
    width = 60 + 22 * max(len(bars) for own in panels.values() for _, bars in own)
    figure = new_figure(max(width, 300) * len(panels), 230 * steps)
    all_axes = figure.subplots(steps, len(panels), squeeze=False, sharey=True)
    for column, (mode, own) in enumerate(panels.items()):
        for row, (images, bars) in enumerate(own):
            axes = all_axes[row][column]
            colours = [COLOURS[0] if new else "#9aa5ac" for _, _, new in bars]
            axes.bar(range(len(bars)), [count for _, count, _ in bars], color=colours)
            axes.set_title(f"{mode}, step {row}: {images:,} images", fontsize=12)
            names = [shortened(name) for name, _, _ in bars]
            axes.set_xticks(range(len(bars)), names, rotation=60, fontsize=9, horizontalalignment="right",
                            rotation_mode="anchor")  # fmt: skip
            axes.set_ylabel("images")
    return Chart("distribution", title, f"{title}: {', '.join(panels)}; new classes are coloured", figure)


def _palette(samples: Samples) -> np.ndarray:
    """The colour of each label."""
    count = len(samples.run.steps[-1].classes) - 1
    colours = shipped_colours(samples.run.folder)
    chosen = colours if colours is not None and len(colours) == count else distinct_colours(count)
    return np.array(flat_palette(chosen), dtype=np.uint8).reshape(-1, 3)


def _present(picture: np.ndarray | None, other: np.ndarray | None = None) -> np.ndarray:
    found = picture if picture is not None else other
    return found if found is not None else np.full((8, 8, 3), 255, np.uint8)


def _open(path: Path) -> Any:
    try:
        return Image.open(path, formats=["PNG"])
    except OSError as error:
        raise UserError(f"The picture {path} cannot be read: {reason(error)}.") from error
