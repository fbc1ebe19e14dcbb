"""The charts of a page of methods, as SVG files of their own.

Each has its background and its inks inside, light or dark as the reader's system is, so that it can be read
on any page. Names stand beside the lines and points: fifteen methods are too many for a legend.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from segue.report.comparison import Entry, Stat
from segue.report.figures import (
    BOTTOM,
    COLOURS,
    LEFT,
    TOP,
    Line,
    Scale,
    axes,
    axis_limit,
    bound,
    marked_line,
    marker,
    mean_lines,
    shortened,
    tick_size,
)
from segue.report.tables import MEANS, format_number

WIDTH, HEIGHT, MARGIN = 760, 400, 16
ROW = 16
"""between two names"""
CHARACTER = 7.2
"""width of one, at most"""
STYLE = (
    "svg{color:#1f2328}.card{fill:#ffffff}.lead{stroke:currentColor;stroke-opacity:.45}"
    "@media (prefers-color-scheme:dark){svg{color:#e6edf3}.card{fill:#161b22}}"
)

Box = tuple[float, float, float, float]
"""left, top, right, bottom"""


@dataclass(frozen=True)
class Picture:
    """A chart and what is seen in it."""

    kind: str
    alt: str
    svg: str


def method_pictures(setting: str, entries: Mapping[str, Entry], num_steps: int) -> list[Picture]:
    """What there is to draw: lines over more than two steps, and old against new classes."""
    found = [
        _steps(setting, entries, num_steps) if num_steps > 2 else None,
        _plane(setting, entries, num_steps),
    ]
    return [picture for picture in found if picture is not None]


def _steps(setting: str, entries: Mapping[str, Entry], num_steps: int) -> Picture | None:
    """All classes seen so far after each step, without deviations: the tables have them."""
    lines, bounds = (
        [Line(shortened(line.label), tuple(Stat(value.mean) for value in line.values)) for line in side]
        for side in mean_lines(entries.values(), num_steps, "all")
    )
    if not lines:
        return None
    limit = axis_limit([*lines, *bounds])
    height = max(HEIGHT, ROW * (len(lines) + len(bounds)))
    room = 40 + math.ceil(CHARACTER * max(len(f"{line.label} 00.0") for line in (*lines, *bounds)))
    scale = Scale(num_steps, limit, tuple(range(num_steps)), "step", WIDTH, height, room)
    title = f"All classes seen so far: {setting}"
    parts = [*axes(title, "mean IoU, percent", scale)]
    parts += [bound(line, scale) for line in bounds]
    parts += [marked_line(line, index, scale) for index, line in enumerate(lines)]
    parts += _end_names(lines, bounds, scale)
    ends = {line.label: line.values[-1].mean for line in (*lines, *bounds)}
    told = [f"{name} {format_number(ends[name], 1)}" for name in sorted(ends, key=lambda x: -ends[x])]
    alt = (
        f"{setting}: mean IoU of all classes seen so far after each step, a line for each method."
        f" At the end: {', '.join(told)}."
    )
    return Picture("steps", alt, _file(parts, title, scale))


def _end_names(lines: Sequence[Line], bounds: Sequence[Line], scale: Scale) -> Iterator[str]:
    """Name and last value at the right, moved apart where they would collide."""
    found = [line for line in (*lines, *bounds) if not math.isnan(line.values[-1].mean)]
    found.sort(key=lambda line: -line.values[-1].mean)
    ends = [scale.y(line.values[-1].mean) for line in found]
    index = {line.label: position for position, line in enumerate(lines)}
    for line, end, place in zip(found, ends, _apart(ends, TOP, TOP + scale.height), strict=True):
        known = line.label in index
        start = scale.x(scale.num_steps - 1) + 6 if known else scale.width - scale.right
        x = scale.width - scale.right + 16
        colour = COLOURS[index[line.label] % len(COLOURS)] if known else "currentColor"
        yield (
            f'<path d="M{start:.1f} {end:.1f}L{x:.1f} {place:.1f}h6" fill="none" stroke="{colour}"'
            ' stroke-opacity=".6"/>'
        )
        if known:
            yield marker(index[line.label], x + 12, place)
        text = f"{line.label} {format_number(line.values[-1].mean, 1)}"
        yield f'<text x="{x + 22:.1f}" y="{place + 4.5:.1f}">{escape(text)}</text>'


def _apart(ends: Sequence[float], top: float, bottom: float) -> list[float]:
    """Places in the same order, at least a row from each other, near the ends and inside the plot."""
    places: list[float] = []
    for end in ends:
        places.append(max(end, top, places[-1] + ROW if places else top))
    for position in reversed(range(len(places))):
        below = places[position + 1] - ROW if position + 1 < len(places) else bottom
        places[position] = min(places[position], below)
    return places


def _plane(setting: str, entries: Mapping[str, Entry], num_steps: int) -> Picture | None:
    """Old classes to the right, new ones upwards, after the last step."""
    last, points = num_steps - 1, {}
    for name, entry in entries.items():
        old, new = (entry.step_stat(last, MEANS[mean]).scaled(100) for mean in ("old", "new"))
        if not math.isnan(old.mean) and not math.isnan(new.mean):
            points[name] = (old, new)
    if not points:
        return None
    across, limit = (axis_limit([Line("", tuple(p[side] for p in points.values()))]) for side in (0, 1))
    ticks = tuple(range(0, across + 1, tick_size(across)))
    scale = Scale(len(ticks), limit, ticks, "old classes, mean IoU in percent", WIDTH, HEIGHT, MARGIN)
    title = f"Old against new classes after the last step: {setting}"
    parts = [*axes(title, "new classes, mean IoU in percent", scale)]
    spots = {name: _Spot(old, new, scale) for name, (old, new) in points.items()}
    parts += [spot.whiskers(index) for index, spot in enumerate(spots.values())]
    parts += [marker(index, spot.x, spot.y) for index, spot in enumerate(spots.values())]
    parts += _point_names(spots, scale)
    told = [f"{name} {old.mean:.1f} and {new.mean:.1f}" for name, (old, new) in points.items()]
    alt = (
        f"{setting}: old classes (to the right) against new ones (upwards) after the last step, a point for"
        f" each method. Old and new: {', '.join(told)}."
    )
    return Picture("old-new", alt, _file(parts, title, scale))


@dataclass(frozen=True)
class _Spot:
    """A method in the plane."""

    old: Stat
    new: Stat
    scale: Scale

    def across(self, value: float) -> float:
        highest = self.scale.ticks[-1]
        return self.scale.x(min(max(value, 0.0), highest) / highest * (self.scale.num_steps - 1))

    def up(self, value: float) -> float:
        return self.scale.y(min(max(value, 0.0), self.scale.limit))

    @property
    def x(self) -> float:
        return self.across(self.old.mean)

    @property
    def y(self) -> float:
        return self.up(self.new.mean)

    @property
    def boxes(self) -> list[Box]:
        """What names should not cover: the marker and the whiskers."""
        wide, high = (0.0 if math.isnan(stat.std) else stat.std for stat in (self.old, self.new))
        left, right = self.across(self.old.mean - wide), self.across(self.old.mean + wide)
        top, bottom = self.up(self.new.mean + high), self.up(self.new.mean - high)
        x, y = self.x, self.y
        return [
            (x - 6, y - 6, x + 6, y + 6),
            (left, y - 1, right, y + 1),
            (x - 1, top, x + 1, bottom),
        ]

    def whiskers(self, index: int) -> str:
        """One standard deviation to each side, for several seeds."""
        if math.isnan(self.old.std) or math.isnan(self.new.std):
            return ""
        _, (left, _, right, _), (_, top, _, bottom) = self.boxes
        return (
            f'<path d="M{left:.1f} {self.y:.1f}H{right:.1f}M{self.x:.1f} {top:.1f}V{bottom:.1f}" fill="none"'
            f' stroke="{COLOURS[index % len(COLOURS)]}" stroke-width="1.4"/>'
        )


def _point_names(spots: Mapping[str, _Spot], scale: Scale) -> Iterator[str]:
    """Each name at the nearest free place around its point; further away a thin line leads to it."""
    taken = [box for spot in spots.values() for box in spot.boxes]
    for name, spot in spots.items():
        text = shortened(name)
        distance, box = _free_place(spot, CHARACTER * len(text), taken, scale)
        taken.append(box)
        left, top, right, bottom = box
        if distance > 0:
            x, y = min(max(spot.x, left), right), min(max(spot.y, top + 3), bottom - 3)
            yield f'<path class="lead" d="M{spot.x:.1f} {spot.y:.1f}L{x:.1f} {y:.1f}" fill="none"/>'
        yield (
            f'<text x="{(left + right) / 2:.1f}" y="{bottom - 4:.1f}" text-anchor="middle">'
            f"{escape(text)}</text>"
        )


def _free_place(spot: _Spot, width: float, taken: Sequence[Box], scale: Scale) -> tuple[int, Box]:
    """The first place that covers nothing; the nearest one if there is none."""
    nearest = None
    for distance in range(0, 241, 8):
        for across, up in ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1)):
            away = distance + 9
            x = spot.x + across * (away + width / 2)
            y = spot.y - up * (away + ROW / 2)
            box = (x - width / 2, y - ROW / 2, x + width / 2, y + ROW / 2)
            inside = box[0] >= LEFT + 2 and box[2] <= scale.width and box[1] >= TOP - 8
            inside = inside and box[3] <= TOP + scale.height - 1
            if not inside:
                continue
            nearest = nearest or (distance, box)
            if not any(_overlap(box, other) for other in taken):
                return distance, box
    assert nearest is not None, "a name has room in an empty plot"
    return nearest


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _file(parts: Sequence[str], title: str, scale: Scale) -> str:
    """A whole SVG file."""
    width, height = scale.width + 2 * MARGIN, TOP + scale.height + BOTTOM + 2 * MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
        f' viewBox="{-MARGIN} {-MARGIN} {width} {height}" role="img" font-family="system-ui, sans-serif"'
        f' font-size="13" fill="currentColor">\n<title>{escape(title)}</title>\n<style>{STYLE}</style>\n'
        f'<rect class="card" x="{-MARGIN}" y="{-MARGIN}" width="{width}" height="{height}" rx="8"/>\n'
        + "\n".join(part for part in parts if part)
        + "\n</svg>\n"
    )
