"""Mean ranks over settings, by hand, and the diagram of them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from segue.report.ranks import QUANTILES, cliques, critical_difference, mean_ranks, rank_chart

SCORES = {
    "15-1": {"a": 30.0, "b": 20.0, "c": 10.0, "d": 5.0},
    "15-5": {"a": 30.0, "b": 40.0, "c": 10.0, "d": math.nan},
    "19-1": {"a": 30.0, "b": 30.0, "c": 10.0},
}


def test_ties_share_their_places_and_a_method_without_a_score_has_no_rank() -> None:
    ranks = mean_ranks(SCORES)
    assert ranks == pytest.approx({"a": (1 + 2 + 1.5) / 3, "b": (2 + 1 + 1.5) / 3, "c": 3.0})


def test_critical_difference_as_demsar_prints_it() -> None:
    """Demsar (2006), section 3.2.2: four classifiers on fourteen data sets."""
    assert critical_difference(4, 14) == pytest.approx(1.25, abs=0.01)
    assert math.isnan(critical_difference(len(QUANTILES) + 2, 5))


def test_quantiles_are_those_of_the_studentised_range() -> None:
    stats = pytest.importorskip("scipy.stats")
    for methods in (2, 11, 20):
        exact = stats.studentized_range.ppf(0.95, methods, math.inf) / math.sqrt(2)
        assert QUANTILES[methods - 2] == pytest.approx(exact, abs=2e-3)


def test_bars_join_what_is_not_apart_and_none_lies_inside_another() -> None:
    assert cliques([1.0, 1.5, 2.4, 5.0], 1.0) == [(0, 1), (1, 2)]
    assert cliques([1.0, 1.5, 2.0, 5.0], 1.0) == [(0, 2)]
    assert cliques([1.0, 3.0], 1.0) == []


def test_the_diagram_is_drawn_of_two_settings_and_three_methods_on(tmp_path: Path) -> None:
    assert rank_chart("Methods", {"15-1": SCORES["15-1"]}) is None
    assert rank_chart("Methods", {name: {"a": 1.0, "b": 2.0} for name in SCORES}) is None
    chart = rank_chart("Methods", SCORES)
    assert chart is not None and "a 1.5" in chart.alt
    assert chart.save(tmp_path / "ranks.svg").read_text().count("<path") > 5
