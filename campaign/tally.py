"""What counts as a try, and as a failure: everything but an answer or a sentence for the user."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

from segue.core.errors import UserError

HANG_SECONDS = 20.0
"""CPU time that no try takes"""
LONG_SECONDS = 120.0
"""time that no try takes, even where others use the machine"""
LONGEST_SENTENCE = 4000
SHOWN = 5


class LeftOut(Exception):
    """An attack that cannot be made on this machine, and why."""


@dataclass
class Tally:
    """Tries of one class of attack."""

    name: str
    tries: int = 0
    refused: int = 0
    """tries that ended with a sentence for the user"""
    failures: dict[str, int] = field(default_factory=dict)
    """number of each kind of failure: traceback, hang, long, lost, and what a class adds"""
    examples: list[str] = field(default_factory=list)
    seconds: float = 0.0
    """CPU time of all tries, with that of the processes that they started"""

    @contextmanager
    def timed(self) -> Iterator[None]:
        began = sum(os.times()[:4])
        yield
        self.seconds = round(sum(os.times()[:4]) - began, 1)

    def fail(self, kind: str, about: str) -> None:
        self.failures[kind] = self.failures.get(kind, 0) + 1
        if len(self.examples) < SHOWN:
            self.examples.append(f"{kind}: {about[-1500:]}")

    def attempt(self, work: Callable[[], Any], about: Callable[[], str]) -> None:
        """One try."""
        self.tries += 1
        began, spent = time.monotonic(), time.process_time()
        try:
            work()
        except UserError as error:
            self.refused += 1
            if len(str(error)) > LONGEST_SENTENCE:
                self.fail("long", about())
        except Exception:
            self.fail("traceback", f"{about()[:600]}\n{traceback.format_exc()[-800:]}")
        if time.process_time() - spent > HANG_SECONDS or time.monotonic() - began > LONG_SECONDS:
            self.fail("hang", about())


def try_all(
    tally: Tally, strategy: SearchStrategy[Any], work: Callable[[Any], Any], tries: int, number: int
) -> None:
    """So many values of a strategy, chosen by a seed; failures are counted, not raised."""

    @seed(number)
    @settings(
        max_examples=tries,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def one(value: Any) -> None:
        tally.attempt(lambda: work(value), lambda: repr(value))

    one()


def try_both(
    tally: Tally,
    usual: SearchStrategy[Any],
    strange: SearchStrategy[Any],
    work: Callable[[Any], Any],
    tries: int,
    number: int,
) -> None:
    """Two of three tries with what is nearly right, the others with what is strange.

    `one_of` cannot do it: it counts a strategy once however often it is named.
    """
    nearly = round(tries * 2 / 3)
    try_all(tally, usual, work, nearly, number)
    try_all(tally, strange, work, tries - nearly, number)
