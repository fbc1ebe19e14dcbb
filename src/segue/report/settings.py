"""The settings of the runs on a page: a row for each that is worth saying, with the methods that differ."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from segue.core.config import RunConfig, as_dict
from segue.core.neutral import IN_A_ROW
from segue.report.comparison import Entry
from segue.report.markdown import plain_text

SECTIONS = ("model", "optim", "train", "eval")
"""sections that methods could differ in; data and scenario are the same for all in a table"""
ALWAYS = (
    *("model.backbone", "model.head", "train.crop", "train.batch_size", "train.epochs", "train.epochs_next"),
    *("optim.lr_first", "optim.lr_next"),
)
"""settings that are said also where they are the defaults"""
Row = tuple[str, str, str]
"""setting, its value, and the methods that have another one"""


def settings_table(recipes: Mapping[str, RunConfig], entries: Mapping[str, Entry]) -> str:
    """A Markdown table of the settings other than the defaults, and of those in ALWAYS."""
    rows = settings_rows(recipes)
    if start := first_step_row(entries):
        rows.append(start)
    heads = ["setting", "value", "other values"]
    columns = 3 if any(others for _, _, others in rows) else 2
    lines = [heads, ["---"] * 3, *rows]
    return "\n".join(f"| {' | '.join(map(plain_text, line[:columns]))} |" for line in lines)


def settings_rows(recipes: Mapping[str, RunConfig]) -> list[Row]:
    """What most methods have, and who has something else; the methods' own parameters are left out."""
    first = next(iter(recipes.values()))
    usual = _flat(RunConfig(replace(first.scenario, hold_out=0.0), first.method))
    values = {method: _flat(recipe) for method, recipe in recipes.items()}
    rows = []
    for key in dict.fromkeys(key for flat in values.values() for key in flat):
        common = _most_common([flat.get(key) for flat in values.values()])
        others: dict[str, list[str]] = {}
        for method, flat in values.items():
            if _text(flat.get(key)) != _text(common):
                others.setdefault(_text(flat.get(key)), []).append(method)
        if others or key in ALWAYS or _text(common) != _text(usual.get(key)):
            told = "; ".join(f"{value} ({', '.join(methods)})" for value, methods in others.items())
            rows.append((key, _text(common), told))
    return rows


def _flat(recipe: RunConfig) -> dict[str, Any]:
    """Settings by their dotted key, without those that do not alter the numbers."""
    sections = {name: section for name, section in as_dict(recipe).items() if name in SECTIONS}
    flat = {f"{name}.{key}": value for name, section in sections.items() for key, value in section.items()}
    flat["train.epochs_next"] = recipe.train.epochs_of(1)
    flat["scenario.hold_out"] = recipe.scenario.hold_out
    return {key: value for key, value in flat.items() if key not in IN_A_ROW}


def _most_common(values: Sequence[Any]) -> Any:
    """The first of the values that most methods have."""
    texts = [_text(value) for value in values]
    return values[texts.index(Counter(texts).most_common(1)[0][0])]


def _text(value: Any) -> str:
    """A value as it stands in a recipe; of a path the name alone."""
    return Path(value).name if isinstance(value, str) else json.dumps(value)


def first_step_row(entries: Mapping[str, Entry]) -> Row | None:
    """Which methods begin with the same model, by the records: the same answers on every test pixel."""
    starts: dict[tuple[Any, ...], list[str]] = {}
    for name, entry in entries.items():
        if not entry.offline:
            start = tuple((run.steps[0].seed, run.steps[0].confusion) for run in entry.runs)
            starts.setdefault(start, []).append(name)
    if sum(map(len, starts.values())) < 2:
        return None
    largest = max(starts.values(), key=len)
    if len(largest) == 1:
        return "model after step 0", "each method its own", ""
    own = [name for names in starts.values() if names is not largest for name in names]
    return "model after step 0", "one for all, per seed", f"their own ({', '.join(own)})" if own else ""
