"""The share of pixels of each class in each step, as bars: the paper's figure of class distributions.

What is no new class stands first, by what it was drawn as, because most of it is taught as background.
"""

from __future__ import annotations

from collections.abc import Sequence

from segue.data.doctor.diagnosis import StepSurvey
from segue.report.charts import COLOURS, Chart, house_style, new_figure, shortened

BAR, SIDES, HEIGHT, LEAST_WIDTH = 36, 90, 330, 360
"""points of a bar and of what surrounds the bars"""
OTHER, NEW = "#9aa5ac", COLOURS[0]


def distribution_charts(steps: Sequence[StepSurvey]) -> list[Chart]:
    """One chart a step, all on one scale."""
    bars = [_bars(step) for step in steps]
    highest = 100 * max((share for step in bars for _, share, _ in step), default=0.0)
    limit = next(top for top in (5, 10, 20, 40, 60, 80, 100) if top >= min(highest, 100))
    return [
        _chart(f"Step {step.index}: {step.train:,} training images", own, limit)
        for step, own in zip(steps, bars, strict=True)
    ]


def _bars(step: StepSurvey) -> list[tuple[str, float, str]]:
    """Name, share and colour."""
    others = [(name, share, OTHER) for name, share in step.sources.items() if name in step.becomes]
    return others + [(count.name, count.share, NEW) for count in step.classes]


@house_style()
def _chart(title: str, bars: Sequence[tuple[str, float, str]], limit: int) -> Chart:
    figure = new_figure(max(SIDES + BAR * len(bars), LEAST_WIDTH), HEIGHT)
    axes = figure.subplots()
    axes.set_title(title)
    places = range(len(bars))
    shares = [100 * share for _, share, _ in bars]
    drawn = axes.bar(places, shares, width=0.72, color=[colour for _, _, colour in bars])
    axes.bar_label(drawn, fmt="%.1f", fontsize=10, padding=2)
    axes.set_ylim(0, limit)
    axes.set_ylabel("percent of the pixels")
    axes.set_xticks(
        places,
        [shortened(name) for name, _, _ in bars],
        rotation=50,
        fontsize=11,
        horizontalalignment="right",
        rotation_mode="anchor",
    )
    axes.tick_params(axis="x", length=0)
    told = ", ".join(f"{name} {share:.2f} %" for (name, _, _), share in zip(bars, shares, strict=True))
    return Chart("distribution", title, f"{title}: {told}", figure)
