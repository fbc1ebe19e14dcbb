"""The verdict on a grown model: a table for the terminal, and a page with pictures of what changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from rich.table import Table
from rich.text import Text

from segue.core.classes import Colour
from segue.core.palette import hexadecimal
from segue.core.verdict import OldClass, Verdict
from segue.report.page import render_page, write_page
from segue.report.pictures import picture

COLUMNS = ("before", "after", "change", "95 %\ninterval", "lost\nto new", "images")
PICTURES = ("image", "old model", "grown model", "difference")


@dataclass(frozen=True)
class Change:
    """One image before and after; all pictures have one size."""

    key: str
    share: float
    """changed pixels among those that count, in percent"""
    what: str
    """most frequent change, from class to class; empty if there is none"""
    image: Image.Image
    before: Image.Image
    after: Image.Image
    difference: Image.Image


@dataclass(frozen=True)
class LegendEntry:
    name: str
    colour: Colour
    new: bool


@dataclass(frozen=True)
class Gallery:
    """Images before and after under one heading, with the colours that they show."""

    title: str
    note: str
    """meaning of the picture of the difference"""
    changes: Sequence[Change]
    legend: Sequence[LegendEntry]


def verdict_table(verdict: Verdict) -> Table:
    """Old classes before and after, then the new ones."""
    title = f"Old classes: {_measure(verdict)}; new classes: IoU"
    table = Table(title=Text(title), caption="in percent")
    table.add_column("class")
    for head in COLUMNS:
        table.add_column(head, justify="right")
    for one in verdict.old:
        table.add_row(Text(one.name), *_cells(one))
    table.add_section()
    for name, value in verdict.new.items():
        table.add_row(Text(f"{name} (new)"), "", _score(value))
    return table


def write_verdict(path: Path, root: Path, verdict: Verdict, galleries: Sequence[Gallery]) -> Path:
    """Write the page into the folder `root`."""
    page = render_page(
        "verdict.html.j2",
        verdict=verdict,
        measure=_measure(verdict),
        rule=rule(verdict),
        columns=COLUMNS,
        rows=[(one.name, _cells(one)) for one in verdict.old],
        new={name: _score(value) for name, value in verdict.new.items()},
        titles=PICTURES,
        galleries=[_hung(gallery) for gallery in galleries if gallery.changes],
    )
    return write_page(path, page, root)


def rule(verdict: Verdict) -> str:
    """From where on something counts, in words."""
    limits = verdict.limits
    factor = 1.0 if verdict.labelled else limits.unlabelled_factor
    small, large = factor * limits.max_drop, factor * limits.class_drop
    return (
        f"Not safe: the mean over old classes falls by more than {small:g} points, or one class by more than"
        f" {large:g}, in the whole 95 % interval. Look here first: the mean may fall by more than {small:g},"
        f" a class falls by more than {small:g} in its whole interval or by more than {large:g} at all,"
        f" a new class stays under an IoU of {limits.min_new:g} or is not shown by any image, or too little"
        " is seen of all old classes."
    )


def _hung(gallery: Gallery) -> dict[str, object]:
    return {
        "title": gallery.title,
        "note": gallery.note,
        "changes": [_shown(change) for change in gallery.changes],
        "legend": [(entry.name, hexadecimal(entry.colour), entry.new) for entry in gallery.legend],
    }


def _measure(verdict: Verdict) -> str:
    return "IoU" if verdict.labelled else "agreement with the old model"


def _cells(one: OldClass) -> tuple[str, ...]:
    interval = f"{one.low:+.1f}..{one.high:+.1f}"
    change = round(one.change, 1) + 0.0  # + 0.0 turns -0.0 into 0.0
    scores = (f"{one.before:.1f}", f"{one.after:.1f}", f"{change:+.1f}", interval)
    return *scores, f"{one.lost:.1f}", str(one.images)


def _score(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _shown(change: Change) -> dict[str, object]:
    images = (change.image, change.before, change.after, change.difference)
    pictures = [
        picture(image, f"{change.key}: {title}") for title, image in zip(PICTURES, images, strict=True)
    ]
    most = f", most often {change.what}" if change.what else ""
    return {"key": change.key, "text": f"{change.share:.1f} % changed{most}", "pictures": pictures}
