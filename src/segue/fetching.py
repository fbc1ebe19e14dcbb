"""`segue data fetch`: a data set from the web, or from archives got by hand."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from segue.core.progress import Display
from segue.data.getting.fetch import fetch


def fetch_data(name: str, out: Path, archives: Sequence[Path], mirror: str | None) -> None:
    """Get a data set, and say how to train on it."""
    display = Display()
    with _byte_bars(display) as advance:
        found = fetch(name, out, archives, base_url=mirror, advance=advance, say=display.say)
    for line in (
        found.note,
        f"Look at it: segue data check --on {name} data.root={shlex.quote(str(found.root))}",
    ):
        if line:
            Console().print(line, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def _byte_bars(display: Display) -> Iterator[Callable[[str, int, int], None] | None]:
    """A bar for each thing that is done, in bytes; none where nobody watches."""
    if not display.shows_bars:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=16), DownloadColumn())
    columns += (TransferSpeedColumn(), TimeRemainingColumn(compact=True))
    with Progress(*columns, console=display.console) as bars:
        tasks: dict[str, TaskID] = {}

        def advance(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what)
            bars.update(tasks[what], completed=done, total=total)

        yield advance
