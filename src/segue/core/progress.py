"""What a person sees while a run is on: one bar at a time, and a line for whatever is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

REFRESH_SECONDS = 0.2


class Bar:
    """Counts up to a total and shows a short text, through a function or not at all."""

    def __init__(self, show: Callable[[int, str], None] | None = None) -> None:
        self._show, self._shown = show, 0.0

    def update(self, done: int, text: str = "") -> None:
        if self._show is not None:
            self._show(done, text)

    @property
    def due(self) -> bool:
        """Whether a new text would be seen: asking a device for its losses at every iteration is slow."""
        now = time.monotonic()
        if self._show is None or now - self._shown < REFRESH_SECONDS:
            return False
        self._shown = now
        return True


class Display:
    """Bars and messages on the terminal; `quiet` shows neither."""

    def __init__(self, console: Console | None = None, quiet: bool = False) -> None:
        self.console = console or Console(stderr=True)
        self.quiet = quiet
        self._remarks: set[str] = set()

    @property
    def shows_bars(self) -> bool:
        return self.console.is_terminal and not self.quiet

    def say(self, message: str) -> None:
        if not self.quiet:
            self.console.print(message, highlight=False, soft_wrap=True, markup=False)

    def remark(self, message: str) -> None:
        """Say what holds for many runs alike: once."""
        if message not in self._remarks:
            self._remarks.add(message)
            self.say(message)

    @contextmanager
    def bar(self, title: str, total: int) -> Iterator[Bar]:
        if not self.shows_bars:
            yield Bar()
            return
        with terminal_bars(self.console, transient=True) as progress:
            task = progress.add_task(title, total=total, text="")
            yield Bar(lambda done, text: progress.update(task, completed=done, text=text))


def terminal_bars(console: Console, transient: bool) -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        TextColumn("{task.fields[text]}"),
        TimeRemainingColumn(compact=True),
    )
    return Progress(*columns, console=console, transient=transient)
