"""Old classes to the right, new ones upwards: a point for each method, its name at the nearest free place."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from segue.report.charts import INK, Chart, house_style, look, new_figure, shortened
from segue.report.comparison import Entry, Stat
from segue.report.line_charts import WIDE, WIDE_HEIGHT, axis_limit
from segue.report.tables import MEANS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

DIRECTIONS = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))
NEAR, FAR, STRIDE = 8, 250, 8
"""points from the marker at which a name is tried"""
MARKER = 6
"""half the size of a marker, in points"""
CAP = 3
"""half the width of an error bar, in points"""

Point = tuple[Stat, Stat]


@house_style()
def plane_chart(setting: str, entries: Mapping[str, Entry], num_steps: int) -> Chart | None:
    """Mean IoU of old and new classes after the last step, with one standard deviation over the seeds."""
    points: dict[str, Point] = {}
    for name, entry in entries.items():
        old, new = (entry.step_stat(num_steps - 1, MEANS[mean]).scaled(100) for mean in ("old", "new"))
        if not math.isnan(old.mean) and not math.isnan(new.mean):
            points[name] = (old, new)
    if not points:
        return None
    figure = new_figure(WIDE, WIDE_HEIGHT)
    axes = figure.subplots()
    title = f"Old against new classes after the last step: {setting}"
    axes.set_title(title)
    axes.set_xlabel("old classes, mean IoU in percent")
    axes.set_ylabel("new classes, mean IoU in percent")
    axes.grid(True, axis="both")
    for index, (name, entry) in enumerate(entries.items()):  # a method looks the same in every chart
        if name in points:
            (old, new), own = points[name], look(index, entry.offline)
            axes.errorbar(old.mean, new.mean, new.std, old.std, **own, linestyle="", elinewidth=1.4)
    axes.set_xlim(-2, axis_limit(old for old, _ in points.values()) + 2)
    axes.set_ylim(-2, axis_limit(new for _, new in points.values()) + 2)
    _name_points(figure, axes, points)
    told = [f"{name} {old.mean:.1f} and {new.mean:.1f}" for name, (old, new) in points.items()]
    alt = (
        f"{setting}: old classes (to the right) against new ones (upwards) after the last step, a point for"
        f" each method. Old and new: {', '.join(told)}."
    )
    return Chart("old-new", title, alt, figure)


def _name_points(figure: Figure, axes: Axes, points: Mapping[str, Point]) -> None:
    """Each name where it covers nothing; from further away a thin line leads to its point."""
    figure.draw_without_rendering()  # from here on, data and points on the page are related
    taken = [box for point in points.values() for box in _boxes(axes, point)]
    for name, (old, new) in points.items():
        place = (old.mean, new.mean)
        measured = axes.text(0, 0, shortened(name))
        size = measured.get_window_extent()
        measured.remove()
        spot = axes.transData.transform(place)
        distance, box = _free_place(spot, size.width, size.height, taken, axes.bbox)
        taken.append(box)
        middle = ((box.x0 + box.x1) / 2 - spot[0], (box.y0 + box.y1) / 2 - spot[1])
        lead = {"arrowstyle": "-", "color": INK, "alpha": 0.45, "shrinkA": 1, "shrinkB": MARKER - 2}
        axes.annotate(
            shortened(name),
            place,
            middle,
            textcoords="offset points",
            horizontalalignment="center",
            verticalalignment="center",
            arrowprops=lead if distance > NEAR else None,
        )


def _boxes(axes: Axes, point: Point) -> list[Bbox]:
    """What names should not cover: the marker and the two error bars."""
    from matplotlib.transforms import Bbox

    old, new = point
    wide, high = (0.0 if math.isnan(stat.std) else stat.std for stat in point)
    x, y = axes.transData.transform((old.mean, new.mean))
    left, bottom = axes.transData.transform((old.mean - wide, new.mean - high))
    right, top = axes.transData.transform((old.mean + wide, new.mean + high))
    return [
        Bbox([[x - MARKER, y - MARKER], [x + MARKER, y + MARKER]]),
        Bbox([[left, y - CAP], [right, y + CAP]]),
        Bbox([[x - CAP, bottom], [x + CAP, top]]),
    ]


def _free_place(
    spot: Sequence[float], width: float, height: float, taken: Sequence[Bbox], frame: Bbox
) -> tuple[int, Bbox]:
    """The nearest place inside the frame that covers nothing; if there is none, the nearest inside."""
    from matplotlib.transforms import Bbox

    nearest = None
    for distance in range(NEAR, FAR, STRIDE):
        for across, up in DIRECTIONS:
            x, y = spot[0] + across * (distance + width / 2), spot[1] + up * (distance + height / 2)
            box = Bbox([[x - width / 2, y - height / 2], [x + width / 2, y + height / 2]])
            inside = box.x0 >= frame.x0 and box.x1 <= frame.x1 and box.y0 >= frame.y0 and box.y1 <= frame.y1
            if not inside:
                continue
            nearest = nearest or (distance, box)
            if not box.count_overlaps(taken):
                return distance, box
    assert nearest is not None, "a name has room in an empty plot"
    return nearest
