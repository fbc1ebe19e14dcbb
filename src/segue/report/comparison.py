"""Runs side by side: which of them share a row, and the numbers of each row.

Runs that are not comparable (comparable.py) are refused, because one benchmark name hides different ground
truths. Runs that differ in the seed alone share one row, as mean and sample standard deviation.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median

import numpy as np

from segue.core.errors import UserError
from segue.core.metrics import RunScores, StepScores, iou, run_scores, step_scores
from segue.core.neutral import IN_A_ROW, drop, with_defaults
from segue.core.records import RunRecord, StepRecord
from segue.report.comparable import Groups, difference, extends_a_model, notes, split_text, tested_text


@dataclass(frozen=True)
class Stat:
    """Mean and sample standard deviation over runs; NaN where it is not defined."""

    mean: float
    std: float = math.nan

    def scaled(self, factor: float) -> Stat:
        return Stat(self.mean * factor, self.std * factor)

    def text(self, decimals: int, sign: str = " ± ") -> str:
        """The mean and, where there is one, the deviation after the sign."""
        mean = format_number(self.mean, decimals)
        return mean if math.isnan(self.std) else f"{mean}{sign}{format_number(self.std, decimals)}"


def format_number(value: float, decimals: int) -> str:
    """A number, or a dash where it is not defined."""
    if math.isnan(value):
        return "-"
    return f"{round(value, decimals) + 0.0:.{decimals}f}"  # + 0.0 turns -0.0 into 0.0


def stat(values: Iterable[float]) -> Stat:
    """Statistics of the values that are not NaN."""
    known = np.array([value for value in values if not math.isnan(value)])
    if not len(known):
        return Stat(math.nan)
    return Stat(float(known.mean()), float(known.std(ddof=1)) if len(known) > 1 else math.nan)


@dataclass(frozen=True)
class Entry:
    """One row: the runs of a method that differ in the seed alone."""

    label: str
    method: str
    runs: tuple[RunRecord, ...]

    @property
    def offline(self) -> bool:
        return self.runs[0].steps[0].offline

    @property
    def finished(self) -> tuple[RunRecord, ...]:
        return tuple(run for run in self.runs if run.finished)

    @property
    def groups(self) -> Groups:
        return self.runs[0].steps[0].groups

    @property
    def extension(self) -> bool:
        """Whether the runs begin with a model instead of at step 0."""
        return extends_a_model(self.runs[0].steps[0])

    @cached_property
    def confusions(self) -> dict[Path, list[np.ndarray]]:
        """Matrices of each run by its folder; kept, since turning long records into arrays takes time."""
        return {run.folder: [record.matrix for record in run.steps] for run in self.runs}

    def step_stat(self, step: int, score: Callable[[StepScores], float]) -> Stat:
        """A score after one step of the split. Joint, trained on everything, stands at the last step."""
        last, found = len(self.groups) - 1, []
        for run in self.runs:
            for record, matrix in zip(run.steps, self.confusions[run.folder], strict=True):
                if step == (last if self.offline else record.step):
                    found.append(score(step_scores(matrix, len(self.groups[0]))))
        return stat(found)

    def bounds(self, joint: Entry | None) -> list[np.ndarray]:
        """The matrices of Joint's finished runs, if it was trained for the same classes."""
        if joint is None or joint.groups != self.groups:
            return []
        return [joint.confusions[run.folder][-1] for run in joint.finished]

    def final_stat(self, score: Callable[[RunScores], float], joint: Entry | None) -> Stat:
        """A score of the finished runs, each averaged over the seeds of Joint where it needs Joint."""
        bounds, per_run = self.bounds(joint), []
        for run in self.finished:
            per_run.append(stat(score(self.scores(run, bound)) for bound in bounds or [None]).mean)
        return stat(per_run)

    def scores(self, run: RunRecord, joint: np.ndarray | None) -> RunScores:
        """All scores of a run of this row."""
        first = run.steps[0]
        same_images = "between" not in first.policy
        return run_scores(self.confusions[run.folder], len(first.groups[0]), joint, same_images)

    def incremental_stat(self, score: Callable[[RunScores], float], joint: Entry | None = None) -> Stat:
        """A score about learning in steps, from step 0 on: neither Joint nor an extension has it."""
        return Stat(math.nan) if self.offline or self.extension else self.final_stat(score, joint)

    def train_minutes(self) -> Stat:
        """Training time of the finished runs, all steps together."""
        return stat(sum(r.seconds.get("train", math.nan) for r in run.steps) / 60 for run in self.finished)

    def peak_mib(self) -> Stat:
        """Largest memory of the finished runs over their steps."""
        return stat(max(r.peak_memory for r in run.steps) / 2**20 for run in self.finished)

    def later_minutes(self) -> float:
        """Training time after step 0, which another run may have trained; of Joint its only step.

        The median: one run of many may have waited for others.
        """
        seconds = (sum(r.seconds.get("train", math.nan) for r in _later(run)) for run in self.finished)
        known = [each for each in seconds if not math.isnan(each)]
        return median(known) / 60 if known else math.nan

    def later_mib(self) -> Stat:
        """Largest memory of the same steps."""
        return stat(max(r.peak_memory for r in _later(run)) / 2**20 for run in self.finished)

    def kept_kib(self) -> Stat:
        """State that outlives the last step, beside the model; NaN where records do not tell."""
        kept = (run.steps[-1].kept for run in self.finished)
        return stat(math.nan if size is None else size / 2**10 for size in kept)

    def class_stats(self) -> list[Stat]:
        """IoU of each channel at the end, background first; empty as long as no run is finished."""
        rows = [iou(self.confusions[run.folder][-1]) for run in self.finished]
        return [stat(column) for column in zip(*rows, strict=True)]


def _later(run: RunRecord) -> Sequence[StepRecord]:
    return run.steps[1:] or run.steps


@dataclass(frozen=True)
class Comparison:
    """Comparable runs and what they have in common."""

    dataset: str
    groups: Groups
    policy: dict[str, str]
    entries: tuple[Entry, ...]
    notes: tuple[str, ...]
    """remarks on single runs"""

    @property
    def num_steps(self) -> int:
        return len(self.groups)

    @property
    def num_first(self) -> int:
        return len(self.groups[0])

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of all channels, background first."""
        return ("background", *sum(self.groups, ()))

    @property
    def title(self) -> str:
        steps = f"{self.num_steps} step{'s' if self.num_steps > 1 else ''}"
        mode = self.policy.get("mode", "mode not recorded")
        tested = f", on {text}" if (text := tested_text(self.policy)) else ""
        dataset = Path(self.dataset).stem if self.dataset.endswith(".py") else self.dataset
        closed = ", background closed" if self.policy.get("background") == "closed" else ""
        return f"{dataset}, split {split_text(self.groups)}, {steps}, {mode}{tested}{closed}"

    @cached_property
    def joint(self) -> Entry | None:
        """The upper bound, if there is a finished one."""
        return next((entry for entry in self.entries if entry.offline and entry.finished), None)


def compare(runs: Sequence[RunRecord]) -> Comparison:
    """Check that the runs are comparable and sort them into rows, in the order given."""
    started = [run for run in runs if run.steps]
    if not started:
        raise UserError("There is nothing to report: no run has finished a step yet.")
    # all against the longest, whose classes say what the others may have, and against one with all images
    longest = max(started, key=lambda run: len(run.steps[0].groups))
    usual = next((run for run in started if not extends_a_model(run.steps[0])), longest)
    for first in dict.fromkeys((started.index(longest), started.index(usual))):
        for run in started:
            if problem := difference(started[first].steps[0], run.steps[0]):
                names = f"{started[first].folder} and {run.folder}"
                raise UserError(f"{names} cannot stand in one table: {problem}.")
    record, groups = usual.steps[0], longest.steps[0].groups
    return Comparison(record.dataset, groups, record.policy, _entries(started), notes(runs))


def _entries(runs: Sequence[RunRecord]) -> tuple[Entry, ...]:
    rows: dict[tuple[str, int], list[RunRecord]] = {}
    repeats: Counter[tuple[str, int]] = Counter()
    for run in runs:
        settings, seed = _settings(run), run.steps[0].seed
        # The same seed twice is a repetition and no second sample: it gets a row of its own.
        rows.setdefault((settings, repeats[settings, seed]), []).append(run)
        repeats[settings, seed] += 1
    firsts = [members[0] for members in rows.values()]
    methods = Counter(map(_method_name, firsts))
    names = Counter(map(row_name, firsts))
    return tuple(
        Entry(_label(members[0], methods, names), _method_name(members[0]), tuple(members))
        for members in rows.values()
    )


def _label(run: RunRecord, methods: Counter[str], names: Counter[str]) -> str:
    """The method; where several rows have it, the name of the row; where several have that, the folder."""
    method, name = _method_name(run), row_name(run)
    if methods[method] == 1:
        return method
    return name if names[name] == 1 else f"{method} ({run.folder.parent.name}/{run.name})"


def row_name(run: RunRecord) -> str:
    """By the folder of a run: caf-similar-s0 with seed 0 is `caf-similar`, any other is `caf (folder)`."""
    method, name = _method_name(run), run.name.removesuffix(f"-s{run.steps[0].seed}")
    return name if name != run.name and name.startswith(method) else f"{method} ({name})"


def _settings(run: RunRecord) -> str:
    """The recipe without what may differ inside a row."""
    recipe = with_defaults(json.loads(json.dumps(run.recipe, default=str)))  # it may lack newer settings
    drop(recipe, IN_A_ROW)
    recipe.pop("eval", None)
    return json.dumps(recipe, sort_keys=True)


def _method_name(run: RunRecord) -> str:
    return Path(run.method).stem if run.method.endswith(".py") else run.method
