"""`segue data convert` and `segue data fetch`: from other people's files to a folder to train on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

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
from rich.table import Table
from rich.text import Text

from segue.data.convert import Converted
from segue.data.convert import convert as convert_source
from segue.data.formats import read_source
from segue.data.getting.fetch import fetch
from segue.engine.progress import Display

MOST_LINES = 10
"""of reasons why images were left out"""


def convert_annotations(
    source: Path,
    out: Path,
    layout: Literal["voc", "folder"],
    images: Path | None,
    test_share: float,
    skip_bad: bool,
) -> None:
    """Convert, and say what was written and what was left out."""
    found = read_source(source, images)
    with Display().bar(f"converting {found.format}", len(found.drawings)) as bar:
        done = convert_source(found, out, layout, test_share, skip_bad, lambda count, _: bar.update(count))
    console = Console()
    console.print(_table(done, found.format))
    lines = [*done.notes, *(f"left out: {reason}" for reason in done.skipped[:MOST_LINES])]
    if len(done.skipped) > MOST_LINES:
        lines.append(f"left out: {len(done.skipped) - MOST_LINES} more")
    lines.append(f"Look at it: segue data check --on folder data.root={done.out}")
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def fetch_data(name: str, out: Path, archives: Sequence[Path], mirror: str | None) -> None:
    """Get a data set, and say how to train on it."""
    display = Display()
    with _byte_bars(display) as advance:
        found = fetch(name, out, archives, base_url=mirror, advance=advance, say=display.say)
    for line in (found.note, f"Look at it: segue data check --on {name} data.root={found.root}"):
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


def _table(done: Converted, kind: str) -> Table:
    table = Table(title=Text(f"{kind}: images with each class"))
    table.add_column("class")
    for split in done.images:
        table.add_column(split, justify="right")
    for name in done.classes:
        table.add_row(Text(name), *(f"{done.images_with[split][name]:,}" for split in done.images))
    table.add_section()
    table.add_row("all images", *(f"{count:,}" for count in done.images.values()))
    return table
