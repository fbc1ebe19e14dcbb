"""Methods by their mean rank over many settings, with the critical difference of Nemenyi's test.

In each setting the best method has rank 1; ties share the mean of their places. Two methods whose mean ranks
are nearer than the critical difference are joined by a bar: so far apart they could come by chance, if the
settings were independent. Settings that share data and seeds are not: there methods may look further apart
than they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from segue.report.charts import INK, Chart, house_style, look, new_figure, shortened

QUANTILES = (
    *(1.960, 2.344, 2.569, 2.728, 2.850, 2.948, 3.031, 3.102, 3.164, 3.219),
    *(3.268, 3.313, 3.354, 3.391, 3.426, 3.458, 3.489, 3.517, 3.544),
)
"""studentised range at 5 % over sqrt(2), infinite degrees of freedom, for 2 to 20 methods"""
LINE = 20
"""points between two names"""


def mean_ranks(scores: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Mean rank of each method that has a score in every setting, best first."""
    common = [
        method
        for method in next(iter(scores.values()), {})
        if all(not math.isnan(each.get(method, math.nan)) for each in scores.values())
    ]
    ranks = {method: 0.0 for method in common}
    for each in scores.values():
        for method in common:
            better = sum(each[other] > each[method] for other in common)
            equal = sum(each[other] == each[method] for other in common)
            ranks[method] += (better + (equal + 1) / 2) / len(scores)
    return dict(sorted(ranks.items(), key=lambda pair: pair[1]))


def critical_difference(methods: int, settings: int) -> float:
    """Nemenyi's: mean ranks that differ by more are apart at the 5 % level. NaN for more than 20 methods."""
    if not 2 <= methods <= len(QUANTILES) + 1:
        return math.nan
    return QUANTILES[methods - 2] * math.sqrt(methods * (methods + 1) / (6 * settings))


def cliques(ranks: Sequence[float], difference: float) -> list[tuple[int, int]]:
    """Longest runs of neighbours, by first and last position, that are not apart; ranks in their order."""
    found: list[tuple[int, int]] = []
    for first, rank in enumerate(ranks):
        last = max(index for index, other in enumerate(ranks) if other - rank <= difference)
        if last > first and (not found or last > found[-1][1]):
            found.append((first, last))
    return found


def rank_chart(title: str, scores: Mapping[str, Mapping[str, float]]) -> Chart | None:
    """The diagram; None with fewer than two settings or three methods in all of them."""
    ranks = mean_ranks(scores)
    if len(scores) < 2 or len(ranks) < 3:
        return None
    return _draw(title, ranks, len(scores))


@house_style()
def _draw(title: str, ranks: Mapping[str, float], settings: int) -> Chart:
    names, values = list(ranks), list(ranks.values())
    difference = critical_difference(len(names), settings)
    bars = [] if math.isnan(difference) else cliques(values, difference)
    half = math.ceil(len(names) / 2)
    rows = half + len(bars) / 2 + 2
    figure = new_figure(640, 60 + LINE * rows)
    axes = figure.subplots()
    axes.set_xlim(1 - 0.45 * len(names), len(names) * 1.45)
    axes.set_ylim(-rows, 1.4)
    axes.set_axis_off()
    axes.plot([1, len(names)], [0, 0], color=INK, linewidth=1)
    for rank in range(1, len(names) + 1):
        axes.plot([rank, rank], [0, 0.2], color=INK, linewidth=1)
        axes.text(rank, 0.35, str(rank), horizontalalignment="center", fontsize=10)
    for level, (first, last) in enumerate(bars):
        height = -0.5 - level / 2
        axes.plot([values[first] - 0.05, values[last] + 0.05], [height] * 2, color=INK, linewidth=4)
    below = 0.5 + len(bars) / 2
    for index, name in enumerate(names):
        left = index < half
        height = -below - (index if left else len(names) - 1 - index) - 0.5
        edge = 0.8 if left else len(names) + 0.2
        axes.plot([values[index], values[index], edge], [0, height, height], linewidth=1,
                  color=look(index)["color"])  # fmt: skip
        words = (
            f"{shortened(name)}  {values[index]:.1f}" if left else f"{values[index]:.1f}  {shortened(name)}"
        )
        axes.text(edge + (-0.1 if left else 0.1), height, words, fontsize=11, verticalalignment="center",
                  horizontalalignment="right" if left else "left")  # fmt: skip
    said = "" if math.isnan(difference) else f", critical difference {difference:.1f}"
    axes.set_title(f"{title}: mean rank over {settings} settings{said}", fontsize=12)
    told = ", ".join(f"{name} {rank:.1f}" for name, rank in ranks.items())
    return Chart("ranks", title, f"{title}: mean rank over {settings} settings: {told}", figure)
