"""What a person sees while a run is on: one bar at a time, and a line for whatever is done."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

REFRESH_SECONDS = 0.2


class Bar:
    """Counts up to a total and shows a short text."""

    def __init__(self, progress: Progress | None, task: int) -> None:
        self._progress, self._task, self._shown = progress, task, 0.0

    def update(self, done: int, text: str = "") -> None:
        if self._progress is not None:
            self._progress.update(self._task, completed=done, text=text)

    @property
    def due(self) -> bool:
        """Whether a new text would be seen: asking a device for its losses at every iteration would slow it down."""
        now = time.monotonic()
        if self._progress is None or now - self._shown < REFRESH_SECONDS:
            return False
        self._shown = now
        return True


class Display:
    """Bars and messages on the terminal; `quiet` shows neither."""

    def __init__(self, console: Console | None = None, quiet: bool = False) -> None:
        self.console = console or Console(stderr=True)
        self.quiet = quiet

    def say(self, message: str) -> None:
        if not self.quiet:
            self.console.print(message, highlight=False, soft_wrap=True, markup=False)

    @contextmanager
    def bar(self, title: str, total: int, unit_text: str = "") -> Iterator[Bar]:
        if self.quiet or not self.console.is_terminal:
            yield Bar(None, 0)
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TextColumn("{task.fields[text]}"),
            TimeRemainingColumn(compact=True),
        )
        with Progress(*columns, console=self.console, transient=True) as progress:
            yield Bar(progress, progress.add_task(title, total=total, text=unit_text))
