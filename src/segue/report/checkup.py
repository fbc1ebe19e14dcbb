"""What the doctor found, on the terminal and as a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from segue.data.doctor.diagnosis import ClassCount, Diagnosis, Finding, StepSurvey, numbered
from segue.report.distribution import distribution_charts
from segue.report.page import render_page, write_page

MOST_ROWS = 40
"""most rows of the table of classes on the terminal; with more classes it shows the rarest"""
BAR_CELLS = 16
FATES = {"background": "Taught as background", "ignored": "Ignored", "their own label": "Keep their labels"}


def checkup_tables(diagnosis: Diagnosis) -> RenderableType:
    """Steps and classes for a terminal of 80 columns."""
    return Group(_steps(diagnosis), _classes(diagnosis))


def write_checkup(path: Path, diagnosis: Diagnosis, costs: Sequence[str]) -> Path:
    """The same as a page, with the distribution of the classes as a plot."""
    page = render_page(
        "checkup.html.j2",
        diagnosis=diagnosis,
        verdict=verdict(diagnosis),
        charts=[Markup(chart.inline()) for chart in distribution_charts(diagnosis.steps)],
        sizes={split: spread_text(sizes) for split, sizes in diagnosis.sizes.items()},
        costs=costs,
        fates=[fate([step]) for step in diagnosis.steps],
    )
    return write_page(path, page)


def verdict(diagnosis: Diagnosis) -> str:
    """One sentence."""
    warned = numbered(diagnosis.warnings, "warning")
    if diagnosis.errors:
        return f"Not ready to train: {numbered(diagnosis.errors, 'error')}, {warned}."
    return "Ready to train." if not diagnosis.warnings else f"Ready to train, with {warned}."


def spread_text(sizes: Sequence[int]) -> str:
    small, middle, large = (f"{sizes[i + 1]} x {sizes[i]}" for i in (0, 2, 4))
    if small == large:
        return f"all {small}"
    return f"smallest {small}, median {middle}, largest {large}"


def fate(steps: Sequence[StepSurvey]) -> str:
    """What training makes of pixels that are no new class."""
    becomes = {name: label for step in steps for name, label in step.becomes.items() if name != label}
    groups = {label: [name for name, own in becomes.items() if own == label] for label in FATES}
    return ". ".join(f"{FATES[label]}: {', '.join(names)}" for label, names in groups.items() if names) + "."


def _steps(diagnosis: Diagnosis) -> Table:
    table = Table(
        title=Text(
            f"{diagnosis.dataset}, {diagnosis.mode}: images, and pixels of training images in percent"
        ),
        caption=Text(fate(diagnosis.steps)),
    )
    kinds = [name for name in diagnosis.steps[0].sources if any(name in s.becomes for s in diagnosis.steps)]
    for title in ("step", "classes", "train", "test", "new", *(kind.split()[0] for kind in kinds)):
        table.add_column(title, justify="right")
    for step in diagnosis.steps:
        new = sum(count.share for count in step.classes)
        shares = [new, *(step.sources[kind] for kind in kinds)]
        numbers = (step.index, len(step.classes), f"{step.train:,}", f"{step.test:,}")
        table.add_row(*map(str, numbers), *(f"{100 * share:.1f}" for share in shares))
    return table


def _classes(diagnosis: Diagnosis) -> Table:
    rows = [(step.index, count) for step in diagnosis.steps for count in step.classes]
    caption = None
    if len(rows) > MOST_ROWS:
        caption = Text(f"The {MOST_ROWS} rarest of {len(rows)} classes; --page FILE shows all.")
        rows = sorted(rows, key=lambda row: row[1].train)[:MOST_ROWS]
    table = Table(title="Classes, in the step that brings them", caption=caption)
    table.add_column("class", max_width=28, overflow="ellipsis", no_wrap=True)
    for title in ("step", "train", "test", "% of step"):
        table.add_column(title, justify="right")
    table.add_column("", no_wrap=True)
    largest = max((count.share for _, count in rows), default=0.0)
    for step, count in rows:
        numbers = (str(step), f"{count.train:,}", f"{count.test:,}", f"{100 * count.share:.2f}")
        table.add_row(Text(count.name), *numbers, _bar(count, largest))
    return table


def _bar(count: ClassCount, largest: float) -> Text:
    cells = round(BAR_CELLS * count.share / largest) if largest else 0
    return Text("█" * max(cells, int(count.share > 0)), style="blue")


def finding_text(finding: Finding) -> Text:
    style = "red" if finding.level == "error" else "yellow"
    text = Text.assemble((finding.level, style), ": ", finding.text)
    for example in finding.examples:
        text.append(f"\n    {example}", style="dim")
    return text
