"""Line charts as inline SVG: one small function instead of a plotting library.

Text and axes take the colour of the page (`currentColor`), so the charts work in light and dark. Lines differ
in colour (a colour-blind-safe set by Okabe and Ito) and in marker.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from segue.report.comparison import Comparison, Entry, Stat
from segue.report.tables import MEANS

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
MARKERS = (
    '<circle r="4.5"/>',
    '<path d="M-4.2-4.2h8.4v8.4h-8.4z"/>',
    '<path d="M0-5.4 5.2 4.2h-10.4z"/>',
    '<path d="M0-5.6 5.6 0 0 5.6-5.6 0z"/>',
    '<path d="M0 5.4 5.2-4.2h-10.4z"/>',
)
WIDTH, PLOT_HEIGHT = 460, 230
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 34, 48
LEGEND_ROW, LEGEND_COLUMNS = 22, 2
CHARACTERS = 26
"""of a name, in the legend"""


@dataclass(frozen=True)
class Line:
    """Values after each step; the gaps are NaN."""

    label: str
    values: tuple[Stat, ...]


def step_charts(comparison: Comparison) -> list[str]:
    """mIoU of all classes and of the old ones over the steps, on one scale; Joint is a dashed line across.

    There are no charts if there is only one step to show.
    """
    if comparison.num_steps < 2 or all(entry.offline for entry in comparison.entries):
        return []
    charts = {"all": "All classes seen so far", "old": "Classes of step 0"}
    content = {mean: mean_lines(comparison.entries, comparison.num_steps, mean) for mean in charts}
    limit = axis_limit(line for sides in content.values() for side in sides for line in side)
    return [line_chart(charts[mean], "mIoU, percent", *content[mean], limit) for mean in charts]


def line_chart(
    title: str,
    unit: str,
    lines: Sequence[Line],
    bounds: Sequence[Line],
    limit: int,
    ticks: Sequence[int] | None = None,
    axis: str = "step",
) -> str:
    """An SVG chart of lines over the steps, from 0 to `limit`; `bounds` are single values for all steps.

    `ticks` and `axis` name other places than steps 0, 1, ...
    """
    count = max(len(line.values) for line in lines)
    scale = Scale(count, limit, tuple(range(count) if ticks is None else ticks), axis)
    rows = math.ceil((len(lines) + len(bounds)) / LEGEND_COLUMNS)
    height = TOP + PLOT_HEIGHT + BOTTOM + rows * LEGEND_ROW
    parts = [*axes(title, unit, scale)]
    parts += [bound(line, scale) for line in bounds]
    parts += [marked_line(line, index, scale) for index, line in enumerate(lines)]
    parts += _legend(lines, bounds)
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}"'
        f' font-family="inherit" font-size="13" fill="currentColor">{"".join(parts)}</svg>'
    )


def axis_limit(lines: Iterable[Line]) -> int:
    """A round number that no value of these lines exceeds."""
    highest = max(_top(value) for line in lines for value in line.values)
    tick = tick_size(highest)
    return min(100, max(tick, tick * math.ceil(highest / tick)))


def tick_size(limit: float) -> int:
    """Percent between two ticks of an axis that ends there."""
    return 10 if limit <= 50 else 20


def mean_lines(entries: Iterable[Entry], num_steps: int, mean: str) -> tuple[list[Line], list[Line]]:
    """One line per method, and those of Joint apart."""
    lines, bounds = [], []
    for entry in entries:
        steps = [num_steps - 1] if entry.offline else range(num_steps)
        line = Line(entry.label, tuple(entry.step_stat(step, MEANS[mean]).scaled(100) for step in steps))
        (bounds if entry.offline else lines).append(line)
    return lines, bounds


@dataclass(frozen=True)
class Scale:
    """Where values stand in a chart of this size."""

    num_steps: int
    limit: int
    ticks: tuple[int, ...]
    axis: str
    width: int = WIDTH
    height: int = PLOT_HEIGHT
    """of the plot alone"""
    right: int = RIGHT
    """room beside the plot"""

    @property
    def stride(self) -> int:
        """Steps between two ticks, and between two markers."""
        return math.ceil(self.num_steps / 11)

    def x(self, step: float) -> float:
        inner = self.width - LEFT - self.right - 32  # 16 at each side keep the markers off the frame
        return LEFT + 16 + inner * step / max(self.num_steps - 1, 1)

    def y(self, value: float) -> float:
        return TOP + self.height * (1 - value / self.limit)


def _top(value: Stat) -> float:
    spread = 0.0 if math.isnan(value.std) else value.std
    return 0.0 if math.isnan(value.mean) else value.mean + spread


def axes(title: str, unit: str, scale: Scale) -> Iterator[str]:
    yield f'<text x="0" y="16" font-size="15" font-weight="600">{escape(title)}</text>'
    end = scale.width - scale.right
    for value in range(0, scale.limit + 1, tick_size(scale.limit)):
        y = scale.y(value)
        yield (
            f'<line x1="{LEFT}" x2="{end}" y1="{y:.1f}" y2="{y:.1f}" stroke="currentColor"'
            f' stroke-opacity="{0.5 if value == 0 else 0.13}"/>'
            f'<text x="{LEFT - 8}" y="{y + 4.5:.1f}" text-anchor="end" opacity=".75">{value}</text>'
        )
    for step in range(0, scale.num_steps, scale.stride):
        yield (
            f'<text x="{scale.x(step):.1f}" y="{TOP + scale.height + 19}" text-anchor="middle"'
            f' opacity=".75">{scale.ticks[step]}</text>'
        )
    x, y = (LEFT + end) / 2, TOP + scale.height / 2
    yield f'<text x="{x}" y="{TOP + scale.height + 38}" text-anchor="middle">{scale.axis}</text>'
    yield f'<text x="13" y="{y}" text-anchor="middle" transform="rotate(-90 13 {y})">{escape(unit)}</text>'


def bound(line: Line, scale: Scale) -> str:
    if math.isnan(line.values[0].mean):
        return ""
    return _dashes(LEFT, scale.width - scale.right, scale.y(line.values[0].mean))


def _dashes(start: float, stop: float, y: float) -> str:
    return (
        f'<line x1="{start:.1f}" x2="{stop:.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke="currentColor"'
        ' stroke-width="1.8" stroke-dasharray="7 5"/>'
    )


def marked_line(line: Line, index: int, scale: Scale) -> str:
    """Line, markers and, for several seeds, whiskers of one standard deviation."""
    points = [(step, value) for step, value in enumerate(line.values) if not math.isnan(value.mean)]
    colour = COLOURS[index % len(COLOURS)]
    path = " ".join(f"{scale.x(step):.1f},{scale.y(value.mean):.1f}" for step, value in points)
    parts = [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.4"/>']
    for step, value in points:
        if step % scale.stride:
            continue
        x = scale.x(step)
        if not math.isnan(value.std):
            low, high = (
                scale.y(max(value.mean - value.std, 0)),
                scale.y(min(value.mean + value.std, scale.limit)),
            )
            parts.append(
                f'<path d="M{x - 4:.1f} {low:.1f}h8m-4 0V{high:.1f}m-4 0h8" fill="none" stroke="{colour}"'
                ' stroke-width="1.4"/>'
            )
        parts.append(marker(index, x, scale.y(value.mean)))
    return "".join(parts)


def marker(index: int, x: float, y: float) -> str:
    colour, shape = COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)]
    return f'<g transform="translate({x:.1f} {y:.1f})" fill="{colour}">{shape}</g>'


def _legend(lines: Sequence[Line], bounds: Sequence[Line]) -> Iterator[str]:
    for position, line in enumerate((*lines, *bounds)):
        row, column = divmod(position, LEGEND_COLUMNS)
        x = LEFT + column * (WIDTH - LEFT) / LEGEND_COLUMNS
        y = TOP + PLOT_HEIGHT + BOTTOM + row * LEGEND_ROW + 8
        if position < len(lines):
            colour = COLOURS[position % len(COLOURS)]
            yield f'<line x1="{x}" x2="{x + 26}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="2.4"/>'
            yield marker(position, x + 13, y)
        else:
            yield _dashes(x, x + 26, y)
        yield f'<text x="{x + 34}" y="{y + 4.5}">{escape(shortened(line.label))}</text>'


def shortened(label: str) -> str:
    """A name that has room in a chart."""
    return label if len(label) <= CHARACTERS else label[: CHARACTERS - 1] + "…"
