"""What a person sees while data are fetched: progress in bytes, and sentences."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn


class ByteBars(Progress):
    """Bars on a terminal only; sentences always, on the error stream."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=16), DownloadColumn())
        remaining = TimeRemainingColumn(compact=True)
        super().__init__(*columns, remaining, console=console, disable=not console.is_terminal)

    def say(self, message: str) -> None:
        self.console.print(message, markup=False, highlight=False, soft_wrap=True)
