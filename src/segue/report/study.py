"""A whole study as one file: packed records (`study.jsonl`), a line per method and setting, or mean ranks."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

from segue.core.errors import UserError
from segue.core.image_counts import read_counts
from segue.core.packed import STUDY_FILE, packed_places, study_line
from segue.core.records import RunRecord, read_run
from segue.report.charts import Chart
from segue.report.comparable import tested_text
from segue.report.comparison import Comparison, Entry, compare, row_name
from segue.report.ranks import rank_chart
from segue.report.tables import MEANS

HEADS = (
    *("dataset", "split", "mode", "tested", "method", "seeds"),
    *(
        f"{name}{end}"
        for name in ("old", "new", "all", "hiou", "average", "forgetting")
        for end in ("", "_std")
    ),
    *("train_minutes", "later_minutes", "peak_mib", "kept_kib", "parameters"),
)


def read_runs(places: Sequence[Path]) -> list[RunRecord]:
    """Runs of folders; a packed study gives all of its own."""
    found: list[RunRecord] = []
    for place in places:
        packed = place.name == STUDY_FILE and place.is_file()
        found += [read_run(each) for each in (packed_places(place) if packed else [place])]
    return found


def packed_study(runs: Sequence[RunRecord], path: Path) -> str:
    """Finished runs as the lines of a study at `path`, which stands for the folders beside it."""
    if path.name != STUDY_FILE:
        raise UserError(f"{path}: a packed study is found by its name: call it {path.with_name(STUDY_FILE)}.")
    lines = {}
    for run in runs:
        if not run.folder.resolve().is_relative_to(path.parent.resolve()):
            raise UserError(
                f"{run.folder} does not lie below {path.parent}, where the study would stand for it."
            )
        if not run.finished:
            raise UserError(f"{run.folder} is not finished: a packed run cannot go on.")
        name = run.folder.resolve().relative_to(path.parent.resolve()).as_posix()
        last = run.steps[-1].step
        counts = read_counts(run.folder, last)
        steps = [json.loads(json.dumps(dataclasses.asdict(record))) for record in run.steps]
        images = {} if counts is None else {last: counts.to_bytes()}
        lines[name] = study_line(name, run.recipe, steps, images)
    return "".join(f"{lines[name]}\n" for name in sorted(lines))


def study_csv(runs: Sequence[RunRecord]) -> str:
    """A line per method and setting: means over seeds in percent, and what it cost; empty: not defined."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(HEADS), lineterminator="\n")
    writer.writeheader()
    comparisons = _comparison_per_setting(runs)
    name_of = _names(comparisons)
    for comparison in comparisons:
        for entry in comparison.entries:
            writer.writerow(_line(name_of(entry), entry, comparison))
    return text.getvalue()


def study_ranks(runs: Sequence[RunRecord]) -> Chart | None:
    """Mean ranks over all settings of the methods that were run in each of them; Joint has no rank."""
    comparisons = _comparison_per_setting(runs)
    name_of = _names(comparisons)
    scores: dict[str, dict[str, float]] = {}
    for position, comparison in enumerate(comparisons):
        ranked = [entry for entry in comparison.entries if not entry.offline]
        names = [name_of(entry) for entry in ranked]
        if twice := [name for name in names if names.count(name) > 1]:
            raise UserError(
                f"Two rows of {comparison.dataset} are called {twice[0]}: ranks need one of each."
            )
        means = [entry.final_stat(lambda run: run.final.all, None).mean for entry in ranked]
        scores[str(position)] = dict(zip(names, means, strict=True))
    return rank_chart("Methods", scores)


def _names(comparisons: Sequence[Comparison]) -> Callable[[Entry], str]:
    """What a row is called in all settings: by its method alone, if that has the same settings everywhere."""
    forms: dict[str, set[str]] = {}
    for entry in (entry for comparison in comparisons for entry in comparison.entries):
        settings = entry.runs[0].recipe.get("method")
        forms.setdefault(entry.method, set()).add(json.dumps(settings, sort_keys=True, default=str))
    return lambda entry: entry.label if len(forms[entry.method]) == 1 else row_name(entry.runs[0])


def _comparison_per_setting(runs: Sequence[RunRecord]) -> list[Comparison]:
    """The finished runs of each data set, split and mode."""
    groups: dict[str, list[RunRecord]] = {}
    for run in runs:
        if run.finished:
            first = run.steps[0]
            groups.setdefault(json.dumps([first.dataset, first.groups, first.policy]), []).append(run)
    if not groups:
        raise UserError("There is nothing to write: no run is finished yet.")
    return [compare(group) for group in groups.values()]


def _line(name: str, entry: Entry, comparison: Comparison) -> dict[str, str | int]:
    last = comparison.num_steps - 1
    means = {name: entry.step_stat(last, score).scaled(100) for name, score in MEANS.items()}
    means["hiou"] = entry.final_stat(lambda s: s.final.h, None).scaled(100)
    means["average"] = entry.incremental_stat(lambda s: s.average).scaled(100)
    means["forgetting"] = entry.incremental_stat(lambda s: s.forgetting).scaled(100)
    recipe, record = entry.runs[0].recipe, entry.runs[0].steps[-1]
    line: dict[str, str | int] = {
        "dataset": Path(comparison.dataset).stem,
        "split": str(recipe.get("scenario", {}).get("split", "")),
        "mode": comparison.policy.get("mode", ""),
        "tested": tested_text(comparison.policy),
        "method": name,
        "seeds": len(entry.finished),
    }
    for name, value in means.items():
        line |= {name: _text(value.mean), f"{name}_std": _text(value.std)}
    return line | {
        "train_minutes": _text(entry.train_minutes().mean),
        "later_minutes": _text(entry.later_minutes()),
        "peak_mib": _text(entry.peak_mib().mean, 0),
        "kept_kib": _text(entry.kept_kib().mean, 1),
        "parameters": record.parameters.get("total", ""),
    }


def _text(value: float, decimals: int = 2) -> str:
    return "" if math.isnan(value) else f"{value:.{decimals}f}"
