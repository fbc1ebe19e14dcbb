"""The table of settings: what most methods have, who differs in what, and who begins with the same model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from segue.core.config import (
    EvalConfig,
    MethodConfig,
    ModelConfig,
    OptimConfig,
    RunConfig,
    ScenarioConfig,
    TrainConfig,
)
from segue.report.comparison import Entry
from segue.report.settings import ALWAYS, first_step_row, settings_rows, settings_table

BASE = RunConfig(
    ScenarioConfig("voc", "15-1"),
    MethodConfig("any"),
    model=ModelConfig("mobilenet", "lite", 8, stages=4, weights="/some/where/net.pth", frozen_stages=3),
    optim=OptimConfig(lr_first=0.005, lr_next=0.0025, head_factor=5.0),
    train=TrainConfig(epochs=6, epochs_next=4, batch_size=8, crop=128, scale=(0.5, 1.0)),
)
LAST = [[50, 0, 0], [10, 40, 0], [0, 0, 30]]


def recipes(**others: RunConfig) -> dict[str, RunConfig]:
    """Others last, so that the first is never the odd one."""
    return {"finetune": BASE, "mib": replace(BASE, method=MethodConfig("mib", {"kd_weight": 3})), **others}


def values(given: dict[str, RunConfig]) -> dict[str, str]:
    return {key: value for key, value, _ in settings_rows(given)}


def test_rows_are_what_is_not_default_and_what_is_always_said():
    assert values(recipes()) == {
        "model.backbone": "mobilenet",
        "model.head": "lite",
        "model.output_stride": "8",
        "model.stages": "4",
        "model.weights": "net.pth",
        "model.frozen_stages": "3",
        "optim.lr_first": "0.005",
        "optim.lr_next": "0.0025",
        "optim.head_factor": "5.0",
        "train.epochs": "6",
        "train.epochs_next": "4",
        "train.batch_size": "8",
        "train.crop": "128",
        "train.scale": "[0.5, 1.0]",
    }
    plain = RunConfig(ScenarioConfig("voc", "15-1"), MethodConfig("mib"))
    assert set(values({"mib": plain})) == set(ALWAYS)
    assert values({"mib": plain})["train.epochs_next"] == "30", "as many as in step 0"


@pytest.mark.parametrize(
    ("change", "key", "value"),
    [
        ({"optim": OptimConfig(clip=None)}, "optim.clip", "null"),
        ({"train": TrainConfig(norm="batch")}, "train.norm", "batch"),
        ({"eval": EvalConfig(thin=2)}, "eval.thin", "2"),
        ({"scenario": ScenarioConfig("voc", "15-1", hold_out=0.2)}, "scenario.hold_out", "0.2"),
    ],
)
def test_other_settings_have_a_row_where_they_are_not_default(change, key, value):
    assert key not in values(recipes())
    assert values({"mib": replace(BASE, **change)})[key] == value


def test_methods_that_differ_stand_beside_the_common_value():
    faster = replace(BASE, optim=replace(BASE.optim, lr_next=0.05))
    moved = replace(BASE, model=replace(BASE.model, weights="/else/where/other.pth"))
    rows = settings_rows({"odd": faster, **recipes(dft=faster, plop=BASE, caf=moved)})
    others = {key: (value, other) for key, value, other in rows if other}
    assert others == {
        "optim.lr_next": ("0.0025", "0.05 (odd, dft)"),
        "model.weights": ("net.pth", "other.pth (caf)"),
    }
    table = settings_table({"odd": faster, **recipes()}, {})
    assert "| optim.lr_next | 0.0025 | 0.05 (odd) |" in table.splitlines()
    assert all(line.count("|") == 3 for line in settings_table(recipes(), {}).splitlines()), "two columns"


def test_settings_without_numbers_are_no_difference():
    other = replace(
        BASE.train, seed=7, workers=9, save_seconds=1.0, log_every=3, checkpointing=True, cache_gb=4
    )
    quiet = replace(BASE, train=other, eval=EvalConfig(samples=0, every=2))
    assert settings_rows(recipes(caf=quiet)) == settings_rows(recipes())


def test_the_same_first_step_is_seen_in_the_records(make_run):
    def entry(method: str, runs: dict[int, int]) -> Entry:
        """Runs with these seeds, with so many hits after step 0."""
        made = [
            make_run(
                method, seed=seed, groups=(("a",), ("b",)), matrices=[[[50, 0], [50 - hits, hits]], LAST]
            )
            for seed, hits in runs.items()
        ]
        return Entry(method, method, tuple(made))

    same = {name: entry(name, {0: 40, 1: 30}) for name in ("finetune", "mib")}
    own = {"caf": entry("caf", {0: 40, 1: 31}), "joint": Entry("joint", "joint", (make_run("joint"),))}
    _, shared, others = first_step_row({**same, **own})
    assert "one" in shared and "caf" in others and "joint" not in others and "mib" not in others
    assert first_step_row(same)[2] == ""
    _, each, others = first_step_row({"mib": same["mib"], "caf": own["caf"]})
    assert "own" in each and not others
    assert first_step_row({"mib": same["mib"], "joint": own["joint"]}) is None
