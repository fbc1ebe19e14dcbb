"""A bar on a terminal, a line a minute elsewhere, nothing when quiet."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from segue.core import progress
from segue.core.progress import Bar, Display


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def lines(clock: Clock, seconds: int, first: int = 0, total: int = 1000, **options: bool) -> list[str]:
    """What is said of one iteration per second."""
    text = io.StringIO()
    with Display(Console(file=text, width=200), **options).bar("mib step 0/1", total, first) as bar:
        for done in range(first + 1, first + seconds + 1):
            clock.now += 1
            bar.update(done, "ce 0.5" if bar.due else "nobody sees this")
    return text.getvalue().splitlines()


def test_without_a_terminal_a_line_a_minute(clock: Clock) -> None:
    said = lines(clock, 200)
    assert [line.split(":")[1].split(",")[0].strip() for line in said] == [
        "60 of 1000",
        "120 of 1000",
        "180 of 1000",
    ]
    assert all(line.startswith("mib step 0/1") and "ce 0.5" in line for line in said)
    assert said[0].endswith("16 min left"), "940 iterations at one a second"
    assert lines(clock, 960)[-1].endswith("40 s left")


def test_the_time_left_counts_from_where_a_run_goes_on(clock: Clock) -> None:
    (said,) = lines(clock, 60, first=5000, total=5000 + 60 + 3 * 3600)
    assert said.endswith("3 h 00 min left")


def test_quiet_says_nothing_but_answers(clock: Clock) -> None:
    assert lines(clock, 200, quiet=True) == []
    text = io.StringIO()
    display = Display(Console(file=text), quiet=True)
    display.say("unheard")
    display.answer("heard")
    assert text.getvalue() == "heard\n"


def test_a_terminal_has_a_bar(clock: Clock) -> None:
    text = io.StringIO()
    console = Console(file=text, width=120, force_terminal=True)
    with Display(console).bar("mib", 10, 4) as bar:
        assert bar.due
        bar.update(7, "ce 0.5")
        assert not bar.due, "shown a moment ago"
        clock.now += progress.REFRESH_SECONDS
        assert bar.due
    assert "7/10" in text.getvalue() and "ce 0.5" in text.getvalue()


def test_a_bar_for_nobody_is_never_due() -> None:
    assert not Bar().due
