"""A comparison as a file. The ending says which: a page, tables, the numbers alone, or the curves alone."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from segue.core.errors import UserError
from segue.core.metrics import iou, step_scores
from segue.core.packed import STUDY_FILE
from segue.core.records import RunRecord, write_text
from segue.report.charts import FORMATS
from segue.report.comparison import Comparison, Entry, compare
from segue.report.html import render
from segue.report.line_charts import step_panels_chart
from segue.report.markdown import markdown_tables
from segue.report.study import packed_study, study_csv, study_ranks

FINAL = ("average", "forgetting", "backward_transfer", "stability", "plasticity", "gap_to_joint")
"""scores of a finished run as a whole"""


def write_report(runs: Sequence[RunRecord], path: str | Path, summary: bool = False) -> Path:
    """Write what the ending of `path` asks for: .html, .md, .csv, .json; the curves as .svg, .pdf, .png.

    `study.jsonl` packs the runs; `summary`: all settings, as a .csv with a line per method and setting, or as
    a picture of mean ranks.
    """
    path = Path(path)
    ending = path.suffix.lower()
    if path.name == STUDY_FILE or ending == ".jsonl":
        return _write_text(path, packed_study(runs, path))
    if summary:
        return _write_summary(runs, path)
    if ending in FORMATS:
        return _write_curves(runs, path)
    if ending not in WRITERS:
        endings = ", ".join((*WRITERS, ".jsonl", *FORMATS))
        raise UserError(f"{path}: a report is written as {endings}; name a file with one of these endings.")
    return _write_text(path, WRITERS[ending](runs))


def _write_text(path: Path, text: str) -> Path:
    write_text(path, text)
    return path


def _write_summary(runs: Sequence[RunRecord], path: Path) -> Path:
    ending = path.suffix.lower()
    if ending == ".csv":
        return _write_text(path, study_csv(runs))
    if ending not in FORMATS:
        raise UserError(f"{path}: a summary is written as {', '.join(('.csv', *FORMATS))}.")
    chart = study_ranks(runs)
    if chart is None:
        raise UserError(
            f"{path}: ranks need at least two settings, and three methods that were run in each of them."
        )
    return chart.save(path)


def _write_curves(runs: Sequence[RunRecord], path: Path) -> Path:
    chart = step_panels_chart(compare(runs))
    if chart is None:
        raise UserError(f"{path}: there are no curves to draw, since no run has more than one step.")
    return chart.save(path)


def csv_table(runs: Sequence[RunRecord]) -> str:
    """A row for each run and step, IoU in percent; a cell is empty where a score is not defined."""
    comparison = compare(runs)
    rows = [row for entry in comparison.entries for row in _step_rows(entry, comparison)]
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: "" if value is None else value for key, value in row.items()} for row in rows)
    return text.getvalue()


def _step_rows(entry: Entry, comparison: Comparison) -> Iterator[dict[str, Any]]:
    for run in entry.runs:
        for record, scores in zip(run.steps, _steps(entry, run, comparison), strict=True):
            per_class = scores["classes"]
            yield {
                "method": entry.label,
                "run": run.name,
                "seed": record.seed,
                **{key: value for key, value in scores.items() if key != "classes"},
                "train_seconds": _number(record.seconds.get("train", math.nan)),
                "peak_mib": _number(record.peak_memory / 2**20),
                **{f"iou {name}": per_class.get(name) for name in comparison.classes[1:]},
            }


def json_document(runs: Sequence[RunRecord]) -> str:
    """The scores of every run, IoU in percent and null where a score is not defined."""
    comparison = compare(runs)
    document = {
        "dataset": comparison.dataset,
        "steps": [list(group) for group in comparison.groups],
        "policy": comparison.policy,
        "notes": list(comparison.notes),
        "methods": [
            {
                "label": entry.label,
                "method": entry.method,
                "runs": [_run(entry, run, comparison) for run in entry.runs],
            }
            for entry in comparison.entries
        ],
    }
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _run(entry: Entry, run: RunRecord, comparison: Comparison) -> dict[str, Any]:
    final: dict[str, float | None] = {}
    if run.finished and not entry.offline and not entry.extension:
        bounds = entry.bounds(comparison.joint) or [None]
        scores = [entry.scores(run, bound) for bound in bounds]
        means = {name: sum(getattr(score, name) for score in scores) / len(scores) for name in FINAL}
        final = {name: _number(100 * mean) for name, mean in means.items()}
    return {
        "run": run.name,
        "seed": run.steps[0].seed,
        "finished": run.finished,
        "final": final,
        "steps": _steps(entry, run, comparison),
    }


def _steps(entry: Entry, run: RunRecord, comparison: Comparison) -> list[dict[str, Any]]:
    """Scores after each step. Joint, trained on everything, stands at the last step."""
    steps = []
    for record, confusion in zip(run.steps, entry.confusions[run.folder], strict=True):
        means = asdict(step_scores(confusion, comparison.num_first))
        names = comparison.classes[: len(confusion)]
        steps.append(
            {
                "step": len(entry.groups) - 1 if entry.offline else record.step,
                **{name: _number(100 * score) for name, score in means.items()},
                "classes": {
                    name: _number(100 * score) for name, score in zip(names, iou(confusion), strict=True)
                },
            }
        )
    return steps


def _number(value: float) -> float | None:
    return None if math.isnan(value) else round(float(value), 4)


WRITERS: dict[str, Callable[[Sequence[RunRecord]], str]] = {
    ".html": render,
    ".md": markdown_tables,
    ".csv": csv_table,
    ".json": json_document,
}
