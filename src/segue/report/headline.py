"""What the numbers of a comparison say, in a few plain sentences.

A model that learns nothing new forgets little, so what is kept and what is learned stand in one sentence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from segue.report.comparison import Comparison, Entry

FORGETS, KEEPS = "finetune", "caf"
"""the two methods that make the point: plain training, and the one that this package is about"""
SPOKEN = {FORGETS: "fine-tuning", KEEPS: "CAF"}
LEARNED = 10.0
"""percent of IoU from which a new class counts as learned"""
MOST_NAMES = 3
"""classes that a sentence names"""


@dataclass(frozen=True)
class Outcome:
    """What one method kept and learned, over its finished runs."""

    name: str
    method: str
    stability: float
    """mean IoU of the first classes at the end, as a share of the one after step 0"""
    new: float
    """mean IoU of the later classes at the end, in percent"""
    all: float
    """mean IoU of all classes at the end, in percent"""
    plasticity: float
    """mean IoU of the later classes, as a share of the one of joint training"""
    later: dict[str, float]
    """IoU of each later class at the end, in percent"""

    @property
    def learned(self) -> int:
        return sum(score >= LEARNED for score in self.later.values())

    @property
    def missed(self) -> dict[str, float]:
        """The later classes that are not learned, the worst first."""
        scores = sorted(self.later.items(), key=lambda item: item[1])
        return {name: score for name, score in scores if score < LEARNED}


def headline(comparison: Comparison) -> str:
    """What is left of the first classes and what was learned since, by the methods worth a sentence."""
    outcomes = contrast(comparison)
    if not outcomes or comparison.num_steps < 2:
        count = len(comparison.entries)
        return f"{count} {'methods' if count > 1 else 'method'} on {comparison.title}"
    first, *others = outcomes
    of_old = f"on the first {_classes(comparison.num_first)}"
    parts = [f"After {comparison.num_steps} steps {_kept(first)} of its score {of_old} and {_learned(first)}"]
    parts += [f"{_kept(other)} and {_learned(other)}" for other in others]
    return "; ".join(parts) + "."


def new_classes(comparison: Comparison) -> str | None:
    """Which new classes were missed, and how near the others come to joint training."""
    outcomes = contrast(comparison)
    missed = [f"{outcome.name} {_missed(outcome)}" for outcome in outcomes if outcome.missed]
    near = [outcome for outcome in outcomes if not math.isnan(outcome.plasticity)]
    reached = ", ".join(f"{outcome.name} reaches {_percent(outcome.plasticity)}" for outcome in near)
    sentences = [
        *([f"New classes below {LEARNED:.0f} % IoU: {'; '.join(missed)}."] if missed else []),
        *([f"Of what joint training scores on the new classes, {reached}."] if near else []),
    ]
    return " ".join(sentences) or None


def scoring(comparison: Comparison) -> str:
    """The rules of the test, in words."""
    future = {
        "ignore": "pixels of classes that a step has not seen yet are not scored at that step",
        "background": "pixels of classes that a step has not seen yet count as background at that step",
    }.get(comparison.policy.get("future", ""), "how classes of later steps are scored is not recorded")
    closed = " No pixel is ever called background." if comparison.policy.get("background") == "closed" else ""
    return (
        "Scores are mean IoU over classes on the test images; background is left out unless a column says"
        f" +bg. Void pixels are never scored, and {future}. A new class counts as learned from"
        f" {LEARNED:.0f} % IoU on.{closed}"
    )


def contrast(comparison: Comparison) -> list[Outcome]:
    """Fine-tuning, CAF, and the best of the others if it is better than CAF on all classes."""
    whole = (entry for entry in comparison.entries if len(entry.groups) == comparison.num_steps)
    outcomes = [_outcome(entry, comparison) for entry in whole if not entry.offline and not entry.extension]
    known = [outcome for outcome in outcomes if not math.isnan(outcome.stability)]
    forgets = [outcome for outcome in known if outcome.method == FORGETS]
    keeps = [outcome for outcome in known if outcome.method == KEEPS]
    others = sorted((one for one in known if one.method not in SPOKEN), key=lambda one: -one.all)
    bar = max((outcome.all for outcome in keeps), default=-math.inf)
    return [*forgets[:1], *keeps[:1], *[outcome for outcome in others if outcome.all > bar][:1]]


def _outcome(entry: Entry, comparison: Comparison) -> Outcome:
    per_class = entry.class_stats()[1 + comparison.num_first :]
    names = comparison.classes[1 + comparison.num_first :]
    scores = {name: 100 * stat.mean for name, stat in zip(names, per_class, strict=False)}
    return Outcome(
        name=entry.label.replace(entry.method, SPOKEN.get(entry.method, entry.method), 1),
        method=entry.method,
        stability=entry.final_stat(lambda s: s.stability, None).mean,
        new=100 * entry.final_stat(lambda s: s.final.new, None).mean,
        all=100 * entry.final_stat(lambda s: s.final.all, None).mean,
        plasticity=entry.final_stat(lambda s: s.plasticity, comparison.joint).mean,
        later={name: score for name, score in scores.items() if not math.isnan(score)},
    )


def _kept(outcome: Outcome) -> str:
    return f"{outcome.name} keeps {_percent(outcome.stability)}"


def _learned(outcome: Outcome) -> str:
    if not outcome.later:
        return "is not tested on new classes"
    if len(outcome.later) > 1:
        return f"learns {outcome.learned} of {len(outcome.later)} new classes (mean IoU {outcome.new:.1f})"
    verb = "learns" if outcome.learned else "does not learn"
    return f"{verb} the new class (IoU {outcome.new:.1f})"


def _missed(outcome: Outcome) -> str:
    named = [f"'{name}' {score:.1f}" for name, score in list(outcome.missed.items())[:MOST_NAMES]]
    more = len(outcome.missed) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _classes(count: int) -> str:
    return f"{count} classes" if count > 1 else "class"
