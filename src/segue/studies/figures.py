"""The figures of the paper: what each needs of its runs, and the files that come of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from segue.core.errors import UserError
from segue.core.progress import Display
from segue.core.records import RunRecord, read_trajectory
from segue.engine.data import build_data
from segue.report.charts import FORMATS, Chart
from segue.report.comparison import Stat
from segue.report.line_charts import Line, axis_limit, line_chart
from segue.report.paper_figures import (
    Samples,
    distribution_figure,
    picture_figure,
    read_samples,
    sensitivity_figure,
)
from segue.report.trajectory import TITLES, trajectories
from segue.studies.grid import Grid

WEIGHTS = {"kd_weight": "lambda_D", "ad_weight": "lambda_AD"}


def serves(kind: str, run: RunRecord) -> bool:
    """Whether a finished run has kept what a figure of this kind shows."""
    if kind == "pictures":
        return read_samples(run) is not None
    return bool(read_trajectory(run.folder)) if kind == "trajectory" else True


def draw(grid: Grid, images: Sequence[str], display: Display) -> Iterator[tuple[str, Chart]]:
    """The charts of a figure, by the ending of their file names. What is missing is said."""
    drawing = {
        "pictures": lambda: _pictures(grid, images),
        "trajectory": lambda: _trajectory(grid),
        "sensitivity": lambda: _sensitivity(grid),
        "distribution": lambda: _distribution(grid, display),
    }
    yield from drawing[grid.item.kind]()


def missing_text(grid: Grid) -> str:
    """Which runs a figure still needs."""
    places = sorted(
        {f"{wanted.row} on {wanted.block}" for wanted in grid.wanted if wanted.place in grid.missing}
    )
    what = {
        "pictures": ", with the pictures of their test images",
        "trajectory": ", with tests during the steps",
    }
    return f"{grid.item.title}: not run: {'; '.join(places)}{what.get(grid.item.kind, '')}."


def write_charts(
    name: str, charts: Iterator[tuple[str, Chart]], folder: Path, display: Display
) -> list[Path]:
    """Each chart as PDF, SVG and PNG."""
    written = []
    for part, chart in charts:
        for ending in FORMATS:
            written.append(chart.save(folder / f"{name}{part}{ending}"))
        display.say(f"Written: {written[-1].with_suffix('')}{{{','.join(FORMATS)}}}")
    return written


def _pictures(grid: Grid, images: Sequence[str]) -> Iterator[tuple[str, Chart]]:
    for block in grid.item.blocks:
        rows: dict[str, Samples] = {}
        for name in grid.item.rows_at(grid.scale.name):
            for orders in grid.records(name, block)[:1]:
                if (samples := read_samples(orders[0])) is not None:
                    rows[name] = samples
        if len(rows) == len(grid.item.rows_at(grid.scale.name)):
            title = f"{grid.item.title}: {block}, scale {grid.scale.name}"
            part = f"-{block.replace(' ', '-')}" if len(grid.item.blocks) > 1 else ""
            yield part, picture_figure(title, grid.item.show, rows, grid.item.images, images)


def _trajectory(grid: Grid) -> Iterator[tuple[str, Chart]]:
    """Old and new classes over the epochs of the last step that was tested on the way."""
    for name in grid.item.rows:
        for block in grid.item.blocks:
            runs = [run for orders in grid.records(name, block) for run in orders]
            found = trajectories(name, runs)
            if not found:
                continue
            last = found[-1]
            limit = axis_limit(v for scores in last.scores.values() for mean in TITLES for v in scores[mean])
            panels = {
                f"{name}, step {last.step}: {what}": [
                    Line(way, scores[mean], index) for index, (way, scores) in enumerate(last.scores.items())
                ]
                for mean, what in TITLES.items()
            }
            yield "", line_chart(panels, limit, last.epochs, "epochs of the step")


def _sensitivity(grid: Grid) -> Iterator[tuple[str, Chart]]:
    panels: dict[str, dict[float, Sequence[Stat]]] = {}
    for block in grid.item.blocks:
        for wanted in grid.wanted:
            if wanted.block != block or wanted.seed or wanted.place not in grid.found:
                continue
            key = next(key for key, text in WEIGHTS.items() if wanted.row.startswith(f"{text} "))
            weight = float(getattr(wanted.recipe.method.params, key))
            cells = grid.cells(wanted.row, block)
            panels.setdefault(f"{WEIGHTS[key]}, {block}", {})[weight] = [cell.ours for cell in cells]
    if panels:
        yield "", sensitivity_figure(grid.item.title, panels)


def _distribution(grid: Grid, display: Display) -> Iterator[tuple[str, Chart]]:
    """Needs the images and no run; without them nothing is drawn."""
    panels = {}
    for wanted in grid.wanted:
        if wanted.seed or wanted.order not in ("", "a"):
            continue
        try:
            data = build_data(wanted.recipe, display)
        except UserError as error:
            display.say(f"{grid.item.title}: {wanted.block} is not drawn: {error}")
            continue
        scenario, steps = data.scenario, []
        for step, images in zip(scenario, data.train_images, strict=True):
            counts = data.train_present[images].sum(0)
            bars = [
                (scenario.classes.names[class_id], int(counts[class_id]), class_id in step.new)
                for group in scenario.groups
                for class_id in group
            ]
            steps.append((len(images), bars))
        panels[wanted.block] = steps
    if panels:
        yield "", distribution_figure(grid.item.title, panels)
