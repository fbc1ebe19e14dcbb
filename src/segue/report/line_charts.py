"""Scores after each step as lines: with a legend for a page, or with names at the ends for many methods."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from segue.report.charts import INK, Chart, house_style, look, new_figure, shortened
from segue.report.comparison import Comparison, Entry, Stat, format_number
from segue.report.tables import MEANS

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.container import Container

WIDTH, HEIGHT, LEGEND_ROW = 400, 290, 21
SHORT_NAME = 18
"""most characters of names that stand in two columns below a panel"""
WIDE, WIDE_HEIGHT, NAME_ROW = 790, 480, 16
MOST_TICKS = 11


@dataclass(frozen=True)
class Line:
    """Values after each step; the gaps are NaN. A `bound` is a single value for all steps."""

    label: str
    values: tuple[Stat, ...]
    look: int = 0
    bound: bool = False


def step_charts(comparison: Comparison) -> list[Chart]:
    """mIoU of all, old and new classes over the steps, on one scale; Joint is a dashed line across.

    There are no charts if there is only one step to show.
    """
    panels, steps = _step_panels(comparison), range(comparison.num_steps)
    limit = _limit(panels)
    return [line_chart({title: lines}, limit, steps, "step") for title, lines in panels.items()]


def step_panels_chart(comparison: Comparison) -> Chart | None:
    """The same side by side in one figure with one legend, for a paper."""
    panels = _step_panels(comparison)
    return line_chart(panels, _limit(panels), range(comparison.num_steps), "step") if panels else None


def _step_panels(comparison: Comparison) -> dict[str, list[Line]]:
    """The lines of each chart by its title."""
    if comparison.num_steps < 2 or all(entry.offline for entry in comparison.entries):
        return {}
    titles = {"All classes seen so far": "all", "Classes of step 0": "old", "Classes of later steps": "new"}
    return {
        title: mean_lines(comparison.entries, comparison.num_steps, mean) for title, mean in titles.items()
    }


def _limit(panels: Mapping[str, Sequence[Line]]) -> int:
    return axis_limit(value for lines in panels.values() for line in lines for value in line.values)


def mean_lines(entries: Iterable[Entry], num_steps: int, mean: str) -> list[Line]:
    """One line per method; that of Joint is a bound."""
    lines = []
    for index, entry in enumerate(entries):
        steps = [len(entry.groups) - 1] if entry.offline else range(num_steps)
        values = tuple(entry.step_stat(step, MEANS[mean]).scaled(100) for step in steps)
        lines.append(Line(shortened(entry.label), values, index, entry.offline))
    return lines


def axis_limit(values: Iterable[Stat]) -> int:
    """A round number of percent that no value exceeds."""
    tops = (value.mean + (0.0 if math.isnan(value.std) else value.std) for value in values)
    highest = max((top for top in tops if not math.isnan(top)), default=0.0)
    tick = tick_size(highest)
    return min(100, max(tick, tick * math.ceil(highest / tick)))


def tick_size(limit: float) -> int:
    """Percent between two ticks of an axis that ends there."""
    return 10 if limit <= 50 else 20


@house_style()
def line_chart(panels: Mapping[str, Sequence[Line]], limit: int, places: Sequence[int], axis: str) -> Chart:
    """Lines from 0 to `limit`, a panel for each title, with one legend below them.

    The panels have the same lines. Several seeds are shown with one standard deviation.
    """
    lines = next(iter(panels.values()))
    columns = len(panels) * (2 if max(len(line.label) for line in lines) <= SHORT_NAME else 1)
    rows = math.ceil(len(lines) / columns)
    figure = new_figure(WIDTH * len(panels), HEIGHT + rows * LEGEND_ROW)
    all_axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (title, own) in zip(all_axes, panels.items(), strict=True):
        _axes(axes, title, limit, places, axis)
        handles = [_line(axes, line, places) for line in own]
    labels = [line.label for line in lines]
    figure.legend(handles, labels, loc="outside lower left", ncols=columns, fontsize=12)
    told = "; ".join(panels)
    return Chart("lines", told, told, figure)


@house_style()
def steps_chart(setting: str, entries: Mapping[str, Entry], num_steps: int) -> Chart | None:
    """All classes seen so far after each step, without deviations: the tables have them."""
    lines = mean_lines(entries.values(), num_steps, "all")
    if all(line.bound for line in lines):
        return None
    limit = axis_limit(Stat(value.mean) for line in lines for value in line.values)
    figure = new_figure(WIDE, max(WIDE_HEIGHT, NAME_ROW * len(lines) + 90))
    axes = figure.subplots()
    title = f"All classes seen so far: {setting}"
    _axes(axes, title, limit, range(num_steps), "step")
    for line in lines:
        if line.bound:
            _bound(axes, line)
        else:
            axes.plot(range(num_steps), [value.mean for value in line.values], **look(line.look))
    ends = sorted(
        (line for line in lines if not math.isnan(line.values[-1].mean)),
        key=lambda line: -line.values[-1].mean,
    )
    figure.draw_without_rendering()  # the layout says how high a row of text is
    _names_at_ends(axes, ends, num_steps - 1)
    told = [f"{line.label} {format_number(line.values[-1].mean, 1)}" for line in ends]
    alt = (
        f"{setting}: mean IoU of all classes seen so far after each step, a line for each method."
        f" At the end: {', '.join(told)}."
    )
    return Chart("steps", title, alt, figure)


def _axes(axes: Axes, title: str, limit: int, places: Sequence[int], axis: str) -> None:
    axes.set_title(title)
    axes.set_ylabel("mean IoU, percent")
    axes.set_ylim(0, limit)
    axes.set_yticks(range(0, limit + 1, tick_size(limit)))
    axes.set_xlabel(axis)
    axes.set_xticks(places[:: math.ceil(len(places) / MOST_TICKS)])
    room = 0.04 * max(places[-1] - places[0], 1)
    axes.set_xlim(places[0] - room, places[-1] + room)


def _line(axes: Axes, line: Line, places: Sequence[int]) -> Artist | Container:
    """A line with its deviations, as the legend shows it."""
    if line.bound:
        return _bound(axes, line)
    stride = math.ceil(len(places) / MOST_TICKS)
    means, spread = [value.mean for value in line.values], [value.std for value in line.values]
    marks = {"elinewidth": 1.4, "markevery": stride, "errorevery": stride}
    return axes.errorbar(list(places), means, spread, **look(line.look), **marks)


def _bound(axes: Axes, line: Line) -> Artist:
    return axes.axhline(line.values[0].mean, color=INK, linestyle=(0, (5, 3)), linewidth=1.6)


def _names_at_ends(axes: Axes, lines: Sequence[Line], last: int) -> None:
    """Name and last value at the right, moved apart where they would collide."""
    limit = axes.get_ylim()[1]
    row = NAME_ROW * limit / axes.bbox.height
    beside = axes.get_yaxis_transform()  # x as a share of the plot, y in percent
    end_of_lines = axes.transAxes.inverted().transform(axes.transData.transform((last, 0)))[0]
    values = [line.values[-1].mean for line in lines]
    for line, value, place in zip(lines, values, spread_out(values, row, limit), strict=True):
        own = look(line.look, line.bound)
        start = 1.0 if line.bound else end_of_lines
        drawn = {"transform": beside, "clip_on": False}
        axes.plot([start, 1.02], [value, place], color=own["color"], linewidth=1, alpha=0.6, **drawn)
        axes.plot([1.035], [place], **own, **drawn)
        text = f"{line.label} {format_number(value, 1)}"
        axes.text(1.05, place, text, transform=beside, verticalalignment="center")


def spread_out(values: Sequence[float], row: float, limit: float) -> list[float]:
    """Places for values in falling order: at least a row apart, near the values, from 0 to `limit`."""
    places: list[float] = []
    for value in values:
        places.append(min(value, limit, places[-1] - row if places else limit))
    for index in reversed(range(len(places))):
        lowest = places[index + 1] + row if index + 1 < len(places) else 0.0
        places[index] = max(places[index], lowest)
    return places
