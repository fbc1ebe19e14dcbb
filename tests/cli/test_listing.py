"""`segue list methods`: papers, what is kept, and stored costs, in 80 columns."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from rich.console import Console

from segue.cli import list as listing
from segue.core import plugins
from segue.core.config import ReplayConfig
from segue.core.costs import Cost, Costs, read_costs
from segue.core.errors import UserError
from segue.methods.base import About


def shown(width: int = 80) -> list[str]:
    text = io.StringIO()
    Console(file=text, width=width).print(listing.methods_table(listing.method_rows()))
    return [line.rstrip() for line in text.getvalue().splitlines()]


def row(lines: list[str], name: str) -> list[str]:
    (line,) = [line for line in lines if line.split()[:1] == [name]]
    return line.split()


def test_every_method_has_a_line_that_fits():
    lines, costs = shown(), read_costs().methods
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["method", "what", "it", "is", "keeps", "time", "memory"]
    for name in plugins.names("method"):
        about, cells = plugins.find("method", name).about, row(lines, name)
        assert about.title in " ".join(cells), "a title is not broken into lines"
        assert any(f"{about.paper} {about.year}" in line for line in lines), "nor is a paper"
        assert cells[-2:] == [f"{costs[name].time:.2f}", f"{costs[name].memory:.2f}"]
        if about.of_class.bytes():
            assert any(f"{about.of_class.bytes():,} B a class" in line for line in lines)


def test_caption_says_where_the_figures_are_from():
    caption = "\n".join(shown()[-len(listing.COSTS_CAPTION.splitlines()) :])
    assert caption == listing.COSTS_CAPTION
    for word in ("relative to fine-tuning", "benchmarks methods", "scenes", "without background"):
        assert word in caption


@dataclass(frozen=True)
class Config:
    memory: ReplayConfig = field(default_factory=ReplayConfig)


def test_many_methods_with_long_words_fit(monkeypatch):
    about = About(
        "Incremental Learning Techniques",
        "Michieli, Zanuttigh, ICCVW",
        2019,
        keeps="teacher, prototypes",
    )
    names = [f"method{i:02d}" for i in range(15)]
    costs = Costs("", {}, "", 1, {name: Cost(12.5, 10.0, 100.0, 10.0) for name in names[1:]})
    monkeypatch.setattr("segue.core.costs.read_costs", lambda: costs)
    monkeypatch.setattr(plugins, "names", lambda kind: names)
    monkeypatch.setattr(plugins, "declared", lambda name: SimpleNamespace(about=about, Config=Config))
    lines = shown()
    assert max(map(len, lines)) <= 80
    assert row(lines, names[1])[-2:] == ["12.50", "10.00"]
    assert row(lines, names[0])[-2:] == ["-", "-"], "not measured"
    assert sum("Michieli, Zanuttigh, ICCVW 2019" in line for line in lines) == 15


def test_bad_file_of_costs_ends_with_a_message(monkeypatch, tmp_path):
    monkeypatch.setattr("segue.core.costs.read_costs", lambda: read_costs(tmp_path / "gone.json"))
    with pytest.raises(UserError, match=r"gone\.json"):
        listing.method_rows()
