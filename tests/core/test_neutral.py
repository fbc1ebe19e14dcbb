"""One list of settings that alter no number: its keys exist, and everybody means the same by it."""

from __future__ import annotations

import dataclasses

from segue.core.config import EvalConfig, ScenarioConfig, TrainConfig
from segue.core.neutral import IN_A_ROW, MAY_CHANGE, NO_NUMBERS, drop


def test_every_key_is_a_setting() -> None:
    kinds = {"train": TrainConfig, "eval": EvalConfig, "scenario": ScenarioConfig}
    known = {f"{name}.{field.name}" for name, kind in kinds.items() for field in dataclasses.fields(kind)}
    assert (MAY_CHANGE | IN_A_ROW) - {"data.root"} <= known
    assert NO_NUMBERS == MAY_CHANGE & IN_A_ROW, "a place is content, and another seed is another number"


def test_what_is_dropped() -> None:
    recipe = {"train": {"workers": 2, "epochs": 3}, "data": None, "eval": {"samples": 1}}
    drop(recipe, ["train.workers", "eval.samples", "data.root", "scenario.keep"])
    assert recipe == {"train": {"epochs": 3}, "data": None, "eval": {}}
