"""What the numbers of a comparison say, in a few plain sentences.

The first one is about what is kept. That alone would praise a model that learns nothing new, so the second
one adds how well the new classes are known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from segue.report.comparison import Comparison, Entry

FORGETS, KEEPS = "finetune", "caf"
"""the two methods that make the point: plain training, and the one that this package is about"""
SPOKEN = {FORGETS: "fine-tuning", KEEPS: "CAF"}


@dataclass(frozen=True)
class _Kept:
    name: str
    stability: float
    plasticity: float


def headline(comparison: Comparison) -> str:
    """What is left of the first classes: fine-tuning, CAF, and any other method that keeps more than CAF."""
    kept = _contrast(comparison)
    if not kept or comparison.num_steps < 2:
        count = len(comparison.entries)
        return f"{count} {'methods' if count > 1 else 'method'} on {comparison.title}"
    first, *others = kept
    text = (
        f"After {comparison.num_steps} steps {first.name} keeps {_percent(first.stability)} of its score on"
        f" the first {_classes(comparison.num_first)}"
    )
    parts = [f"{other.name} keeps {_percent(other.stability)}" for other in others]
    return "; ".join([text, *parts]) + "."


def new_classes(comparison: Comparison) -> str | None:
    """How well the methods of the headline learned what came later, measured by Joint."""
    kept = [one for one in _contrast(comparison) if not math.isnan(one.plasticity)]
    if not kept:
        return None
    count = len(comparison.classes) - 1 - comparison.num_first
    reached = ", ".join(f"{one.name} reaches {_percent(one.plasticity)}" for one in kept)
    return f"On the {_classes(count)} that came later {reached} of what joint training scores."


def scoring(comparison: Comparison) -> str:
    """The rules of the test, in words."""
    future = {
        "ignore": "pixels of classes that a step has not seen yet are not scored at that step",
        "background": "pixels of classes that a step has not seen yet count as background at that step",
    }.get(comparison.policy.get("future", ""), "how classes of later steps are scored is not recorded")
    return (
        "Scores are mean IoU over classes on the test images; background is left out unless a column says"
        f" +bg. Void pixels are never scored, and {future}."
    )


def _contrast(comparison: Comparison) -> list[_Kept]:
    """Fine-tuning, CAF and the best of the others if it keeps more than CAF or if there is no CAF."""
    rows = [_kept(entry, comparison) for entry in comparison.entries if not entry.offline]
    known = [(method, row) for method, row in rows if not math.isnan(row.stability)]
    forgets = [row for method, row in known if method == FORGETS]
    keeps = [row for method, row in known if method == KEEPS]
    if not forgets and not keeps:
        return []
    others = sorted((row for method, row in known if method not in SPOKEN), key=lambda row: -row.stability)
    bar = max((row.stability for row in keeps), default=-math.inf)
    return [*forgets[:1], *keeps[:1], *[row for row in others if row.stability > bar][:1]]


def _kept(entry: Entry, comparison: Comparison) -> tuple[str, _Kept]:
    spoken = SPOKEN.get(entry.method, entry.method)
    name = entry.label.replace(entry.method, spoken, 1)
    stability = entry.final_stat(lambda s: s.stability, None).mean
    plasticity = entry.final_stat(lambda s: s.plasticity, comparison.joint).mean
    return entry.method, _Kept(name, stability, plasticity)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _classes(count: int) -> str:
    return f"{count} classes" if count > 1 else "class"
