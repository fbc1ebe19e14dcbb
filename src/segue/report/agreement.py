"""Whether rows stand in the order of the paper, pair by pair, as far as the spread of the seeds tells."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import combinations

from segue.report.comparison import Stat


def order_text(paper: Mapping[str, float], ours: Mapping[str, Stat]) -> str:
    """How many pairs of rows agree; those the other way round by more than their spread are named."""
    agree, against, total = 0, [], 0
    for low, high in combinations(paper, 2):
        theirs = paper[high] - paper[low]
        if math.isnan(theirs) or theirs == 0:
            continue
        worse, better = (low, high) if theirs > 0 else (high, low)  # by the paper
        if math.isnan(ours[worse].mean + ours[better].mean):
            continue
        total += 1
        spread = sum(0.0 if math.isnan(ours[name].std) else ours[name].std for name in (worse, better))
        agree += ours[better].mean - ours[worse].mean > spread
        if ours[worse].mean - ours[better].mean > spread:
            against.append(f"{worse} above {better}")
    text = (
        f"Of {total} pairs of rows, {agree} stand in the paper's order of 'all' here, {len(against)} the"
        f" other way round, {total - agree - len(against)} are closer than their standard deviations."
    )
    return text + (f" Other way round: {'; '.join(against)}." if against else "")
