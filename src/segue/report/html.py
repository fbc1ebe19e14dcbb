"""The report as one HTML file that needs nothing else: style, charts and pictures stand in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import yaml
from markupsafe import Markup

from segue.core.classes import Colour
from segue.core.palette import BACKGROUND, UNSCORED, hexadecimal
from segue.core.records import RunRecord
from segue.report.comparison import Comparison, Stat, compare
from segue.report.headline import headline, new_classes, scoring
from segue.report.line_charts import step_charts
from segue.report.page import render_page
from segue.report.pictures import read_colours, read_samples, shown_steps
from segue.report.tables import Sheet, metrics_sheet, results_sheet
from segue.report.trajectory import trajectory_charts


def render(runs: Sequence[RunRecord], beside: Mapping[str, str] | None = None) -> str:
    """The page as text; `beside` names other pages and where they lie from this one."""
    comparison = compare(runs)
    colours = read_colours(comparison)
    samples = read_samples(comparison, colours)
    return render_page(
        "report.html.j2",
        comparison=comparison,
        headline=headline(comparison),
        new_classes=new_classes(comparison),
        scoring=scoring(comparison),
        sheets=[_sheet(results_sheet(comparison)), _sheet(metrics_sheet(comparison))],
        charts=[Markup(chart.inline()) for chart in step_charts(comparison)],
        trajectories=[Markup(chart.inline()) for chart in trajectory_charts(comparison)],
        class_rows=_class_rows(comparison),
        samples=samples,
        attention=any(row.kind for sample in samples for row in sample.rows),
        structured=any(row.kind == "attention" for sample in samples for row in sample.rows),
        columns=shown_steps(comparison.num_steps),
        legend=_legend(comparison, colours),
        runs=[_run(run) for run in runs],
        beside=beside or {},
    )


def _sheet(sheet: Sheet) -> dict[str, Any]:
    """A sheet with its upper heads merged and its cells paired with their decimals."""
    uppers = [(upper, len(list(same))) for upper, same in groupby(sheet.heads, key=lambda head: head[0])]
    starts = [index == 0 or head[0] != sheet.heads[index - 1][0] for index, head in enumerate(sheet.heads)]
    return {
        "title": sheet.title,
        "uppers": uppers,
        "lowers": list(zip([lower for _, lower in sheet.heads], starts, strict=True)),
        "rows": [
            (label, list(zip(cells, sheet.decimals, starts, strict=True))) for label, cells in sheet.rows
        ],
        "caption": sheet.caption,
    }


def _class_rows(comparison: Comparison) -> list[dict[str, Any]]:
    """Final IoU per class (rows) and method (columns), background first."""
    columns = [
        [*stats, *[Stat(float("nan"))] * (len(comparison.classes) - len(stats))]
        for stats in (entry.class_stats() for entry in comparison.entries)
    ]
    arrival: list[int | None] = [None, *(k for k, group in enumerate(comparison.groups) for _ in group)]
    return [
        {"name": name, "step": step, "cells": [cell.scaled(100) for cell in cells]}
        for name, step, *cells in zip(comparison.classes, arrival, *columns, strict=True)
    ]


def _legend(comparison: Comparison, colours: Sequence[Colour]) -> list[dict[str, Any]]:
    """Colour and name of each class, by the step that brings it."""
    following = iter(colours)
    groups = {
        f"step {step}": [(name, next(following)) for name in group]
        for step, group in enumerate(comparison.groups)
    }
    groups["other"] = [("background", BACKGROUND), ("not scored", UNSCORED)]
    return [
        {
            "title": title,
            "entries": [{"colour": hexadecimal(colour), "name": name} for name, colour in entries],
        }
        for title, entries in groups.items()
    ]


def _run(run: RunRecord) -> dict[str, Any]:
    """What is needed to judge and to repeat one run."""
    seconds = sum(sum(record.seconds.values()) for record in run.steps)
    return {
        "name": run.name,
        "method": run.method,
        "finished": run.finished,
        "seed": run.steps[0].seed if run.steps else None,
        "versions": run.steps[-1].versions if run.steps else {},
        "recipe_hash": run.steps[0].recipe_hash if run.steps else None,
        "minutes": seconds / 60,
        "memory": max((record.peak_memory for record in run.steps), default=0) / 2**20,
        "steps": run.steps,
        "recipe": yaml.safe_dump(run.recipe, sort_keys=False, allow_unicode=True),
    }
