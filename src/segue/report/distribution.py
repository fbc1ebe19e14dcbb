"""The share of pixels of each class in each step, as bars: the paper's figure of class distributions.

What is no new class stands first, by what it was drawn as, because most of it is taught as background.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from segue.data.doctor.diagnosis import StepSurvey

BAR, GAP = 26, 10
LEFT, TOP, HEIGHT, BOTTOM = 46, 34, 190, 110
CHARACTERS = 18
"""of a name below its bar"""
OTHER, NEW = "#9aa5ac", "#0072b2"


def distribution_charts(steps: Sequence[StepSurvey]) -> list[str]:
    """One chart a step, all on one scale."""
    bars = [_bars(step) for step in steps]
    limit = max((share for step in bars for _, share, _ in step), default=0.0)
    limit = next(top for top in (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0) if top >= min(limit, 1.0))
    return [
        _chart(f"Step {step.index}: {step.train:,} training images", own, limit)
        for step, own in zip(steps, bars, strict=True)
    ]


def _bars(step: StepSurvey) -> list[tuple[str, float, str]]:
    """Name, share and colour."""
    others = [(name, share, OTHER) for name, share in step.sources.items() if name in step.becomes]
    return others + [(count.name, count.share, NEW) for count in step.classes]


def _chart(title: str, bars: Sequence[tuple[str, float, str]], limit: float) -> str:
    width = max(LEFT + len(bars) * (BAR + GAP) + 70, 320)  # the last name leans out to the right
    parts = [f'<text x="{LEFT}" y="16" font-weight="600">{escape(title)}</text>', *_axis(limit, width)]
    for index, (name, share, colour) in enumerate(bars):
        x, height = LEFT + GAP + index * (BAR + GAP), HEIGHT * share / limit
        y = TOP + HEIGHT - height
        hint = f"{escape(name)}: {100 * share:.2f} % of the pixels"
        parts.append(
            f'<g><title>{hint}</title><rect x="{x}" y="{y:.1f}" width="{BAR}" height="{height:.1f}"'
            f' fill="{colour}"/><text x="{x + BAR / 2}" y="{y - 4:.1f}" text-anchor="middle" font-size="10">'
            f'{100 * share:.1f}</text><text font-size="11" transform="translate({x + BAR / 2 - 4}'
            f' {TOP + HEIGHT + 14}) rotate(50)">{escape(_short(name))}</text></g>'
        )
    return (
        f'<svg class="bars" width="{width}" viewBox="0 0 {width} {TOP + HEIGHT + BOTTOM}" role="img"'
        f' aria-label="{escape(title)}" font-family="inherit" font-size="13" fill="currentColor">'
        f"{''.join(parts)}</svg>"
    )


def _axis(limit: float, width: float) -> Iterator[str]:
    for tick in range(5):
        value = limit * tick / 4
        y = TOP + HEIGHT * (1 - tick / 4)
        yield (
            f'<path d="M{LEFT} {y:.1f}H{width - 8}" stroke="currentColor" stroke-opacity=".15"/>'
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" font-size="11">{100 * value:g} %</text>'
        )


def _short(name: str) -> str:
    return name if len(name) <= CHARACTERS else f"{name[: CHARACTERS - 1]}…"
