"""What a person sees while a run is on: a bar on a terminal, a line a minute elsewhere, and messages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from segue.core.amounts import time_text
from segue.core.errors import shown

REFRESH_SECONDS = 0.2
HEARTBEAT_SECONDS = 60.0


class Bar:
    """Counts up to a total and shows a short text every few seconds, through a function or not at all."""

    def __init__(
        self, show: Callable[[int, str], None] | None = None, seconds: float = 0.0, shown: float = 0.0
    ) -> None:
        """`shown`: the last time at which something was shown, by the clock of `time.monotonic`."""
        self._show, self._seconds, self._shown = show, seconds, shown

    def update(self, done: int, text: str = "") -> None:
        if self._show is not None and self.due:
            self._shown = time.monotonic()
            self._show(done, text)

    @property
    def due(self) -> bool:
        """Whether a new text would be seen: asking a device for its losses at every iteration is slow."""
        return self._show is not None and time.monotonic() - self._shown >= self._seconds


class Display:
    """Bars and messages on a terminal, heartbeat lines and messages elsewhere; `quiet` shows none of them."""

    def __init__(self, console: Console | None = None, quiet: bool = False) -> None:
        self.console = console or Console(stderr=True)
        self.quiet = quiet
        self._remarks: set[str] = set()

    @property
    def shows_bars(self) -> bool:
        return self.console.is_terminal and not self.quiet

    def say(self, message: str) -> None:
        if not self.quiet:
            self.answer(message)

    def answer(self, message: str) -> None:
        """Say what somebody waits for, such as the answer to Ctrl-C: also when quiet."""
        self.console.print(shown(message), highlight=False, soft_wrap=True, markup=False)

    def remark(self, message: str) -> None:
        """Say what holds for many runs alike: once."""
        if message not in self._remarks:
            self._remarks.add(message)
            self.say(message)

    def release_terminal(self) -> None:
        """Give back what a bar has taken, when the process ends without closing it."""
        if self.shows_bars:
            self.console.show_cursor()

    @contextmanager
    def bar(self, title: str, total: int, done: int = 0) -> Iterator[Bar]:
        """A bar that begins at `done`; where there is no terminal, a line a minute."""
        if self.quiet:
            yield Bar()
        elif not self.shows_bars:
            yield heartbeat(self.say, title, total, done)
        else:
            with terminal_bars(self.console, transient=True) as progress:
                task = progress.add_task(title, total=total, completed=done, text="")
                yield Bar(
                    lambda done, text: progress.update(task, completed=done, text=text), REFRESH_SECONDS
                )


def heartbeat(say: Callable[[str], None], title: str, total: int, first: int = 0) -> Bar:
    """Says a line a minute: how much is done, the text, and the time left at the speed so far."""
    began = time.monotonic()

    def show(done: int, text: str) -> None:
        words = [f"{done} of {total}", text, _left(time.monotonic() - began, done - first, total - done)]
        say(f"{title}: {', '.join(word for word in words if word)}")

    return Bar(show, HEARTBEAT_SECONDS, began)


def _left(seconds: float, done: int, missing: int) -> str:
    if done <= 0 or missing < 0:
        return ""
    return f"{time_text(missing * seconds / done)} left"


def terminal_bars(console: Console, transient: bool) -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        TextColumn("{task.fields[text]}"),
        TimeElapsedColumn(),
        TextColumn("<"),
        TimeRemainingColumn(compact=True),
    )
    return Progress(*columns, console=console, transient=transient)
