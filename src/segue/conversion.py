"""`segue data convert`: from annotations in many formats to a folder to train on."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from segue.data.convert import Converted
from segue.data.convert import convert as convert_source
from segue.data.formats import read_source
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
    bits: int = 16,
) -> None:
    """Convert, and say what was written and what was left out."""
    found = read_source(source, images)
    with Display().bar(f"converting {found.format}", len(found.drawings)) as bar:
        done = convert_source(
            found, out, layout, test_share, skip_bad, lambda count, _: bar.update(count), bits
        )
    console = Console()
    console.print(_table(done, found.format))
    lines = [*done.notes, *(f"left out: {reason}" for reason in done.skipped[:MOST_LINES])]
    if len(done.skipped) > MOST_LINES:
        lines.append(f"left out: {len(done.skipped) - MOST_LINES} more")
    lines.append(f"Look at it: segue data check --on folder data.root={shlex.quote(str(done.out))}")
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _table(done: Converted, kind: str) -> Table:
    table = Table(title=Text(kind))
    table.add_column("class")
    for split in done.images:
        table.add_column(split, justify="right")
    for name in done.classes:
        table.add_row(Text(name), *(f"{done.images_with[split][name]:,}" for split in done.images))
    table.add_section()
    table.add_row("all images", *(f"{count:,}" for count in done.images.values()))
    return table
