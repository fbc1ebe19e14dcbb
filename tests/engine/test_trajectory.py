"""Tests during a step: at the right epochs, by every strategy, without a trace in what is trained."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tiny_runs import (
    DROPOUT,
    ITERATIONS,
    assert_equal_runs,
    assert_equal_trees,
    files,
    quiet_run,
    recipe,
    run_until,
)

from segue.core.records import read_run, read_trajectory
from segue.engine import record as record_module
from segue.engine import train as train_module
from segue.engine.checkpoint import load_tree
from segue.models.classifier import GrowingClassifier

SHORT = ("train.epochs=1", "train.epochs_next=1", "eval.samples=0")


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of CAF that is tested every second epoch. Not to be changed: copy it."""
    home = tmp_path_factory.mktemp("watched")
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEGUE_CACHE", str(home / "cache"))
        quiet_run(recipe("caf", "eval.every=2"), home / "caf")
    return home / "caf"


def moments(folder: Path) -> list[str]:
    return [name for name in files(folder) if name.startswith("trajectory/")]


def assert_trained_alike(watched: Path, plain: Path) -> None:
    """Everything but the tests during the steps is equal, apart from names, clocks and the recipe's hash."""
    kept = [name for name in files(watched) if not name.startswith("trajectory/")]
    assert kept == files(plain) and moments(watched)
    for name in kept:
        if name.endswith(".safetensors"):
            assert_equal_trees(load_tree(watched / name), load_tree(plain / name), name)
        elif name.startswith("steps/"):
            records = [json.loads((folder / name).read_text()) for folder in (watched, plain)]
            for record in records:
                del record["run"], record["recipe_hash"]
            assert_equal_trees(*records, name)
        elif name != "recipe.yaml":
            assert (watched / name).read_bytes() == (plain / name).read_bytes(), name


def test_tests_during_a_step_leave_the_run_as_it_is_without_them(watched, finished):
    assert_trained_alike(watched, finished("caf"))


def test_tests_during_a_step_draw_no_random_numbers_and_leave_the_training_mode(tmp_path):
    method = tmp_path / "dropout.py"
    method.write_text(DROPOUT)
    words = ("train.epochs=2", "train.epochs_next=2")
    quiet_run(recipe(str(method), *words), tmp_path / "plain")
    quiet_run(recipe(str(method), *words, "eval.every=1"), tmp_path / "watched")
    assert_trained_alike(tmp_path / "watched", tmp_path / "plain")


def test_tests_are_every_few_epochs_and_after_the_last(watched, tmp_path):
    assert moments(watched) == [f"trajectory/{step}-000{epoch}.json" for step in (0, 1) for epoch in (2, 3)]
    words = ("train.epochs=1", "train.epochs_next=4", "eval.every=2", "eval.samples=0")
    quiet_run(recipe("mib", *words), tmp_path / "mib")
    assert [(record.step, record.epoch) for record in read_trajectory(tmp_path / "mib")] == [
        (0, 1),
        (1, 2),
        (1, 4),
    ]
    assert {tuple(record.confusions) for record in read_trajectory(tmp_path / "mib")} == {("predict",)}


def test_every_strategy_of_a_step_is_tested(watched):
    found = read_trajectory(watched)
    expected = [("skip",)] * 2 + [("skip", "zero", "concat")] * 2
    assert [tuple(record.confusions) for record in found] == expected
    steps = read_run(watched).steps
    for record in found:
        assert record.num_first == 2
        for name in record.confusions:
            assert (record.matrix(name).sum(1) == steps[record.step].matrix.sum(1)).all(), "the same pixels"


def test_last_test_of_a_step_is_that_of_its_record(tmp_path, monkeypatch):
    forward = GrowingClassifier.forward

    def centred(self: GrowingClassifier, h: torch.Tensor) -> torch.Tensor:
        """Tests see every class: a few iterations alone leave every pixel background."""
        logits = forward(self, h)
        return logits if self.training else logits - logits.mean((0, 2, 3), keepdim=True)

    monkeypatch.setattr(GrowingClassifier, "forward", centred)
    words = ("train.epochs=2", "train.epochs_next=2", "eval.every=1", "eval.samples=0")
    steps = quiet_run(recipe("caf", *words), tmp_path / "caf").steps
    found = read_trajectory(tmp_path / "caf")
    for step in (0, 1):
        early, late = (record.matrix("skip") for record in found if record.step == step)
        assert (late == steps[step].matrix).all()
        assert (early != late).any(), "training goes on between the two"
        assert (late.sum(0) > 0).all(), "every class is predicted somewhere"


def test_run_that_was_stopped_has_the_same_tests(watched, tmp_path):
    folder, config = tmp_path / "caf", recipe("caf", "eval.every=2")
    run_until(config, folder, 4)
    assert moments(folder) == []
    run_until(config, folder, ITERATIONS[0] - 4 + 4)  # in the very iteration that is followed by a test
    assert moments(folder)[-1] == "trajectory/1-0002.json"
    quiet_run(config, folder, resume=True)
    assert_equal_runs(folder, watched)


def test_tests_may_be_asked_for_when_a_run_goes_on(finished, tmp_path):
    folder = tmp_path / "caf"
    run_until(recipe("caf"), folder, ITERATIONS[0] + 1)
    quiet_run(recipe("caf", "eval.every=1"), folder, resume=True)
    assert moments(folder) == [f"trajectory/1-000{epoch}.json" for epoch in (1, 2, 3)]
    assert_trained_alike(folder, finished("caf"))


def test_time_of_tests_is_not_counted_as_training(tmp_path, monkeypatch):
    clock, test = [0.0], record_module.evaluate_by

    def tick() -> float:
        clock[0] += 0.001
        return clock[0]

    def slow_test(*arguments):
        clock[0] += 1000
        return test(*arguments)

    monkeypatch.setattr(train_module, "time", SimpleNamespace(monotonic=tick))
    monkeypatch.setattr(record_module, "evaluate_by", slow_test)
    steps = quiet_run(recipe("finetune", *SHORT, "eval.every=1"), tmp_path / "run").steps
    assert clock[0] > 2000 and all(0 < record.seconds["train"] < 10 for record in steps)


def test_overwriting_a_run_removes_its_tests(tmp_path):
    folder = tmp_path / "run"
    quiet_run(recipe("finetune", *SHORT, "eval.every=1"), folder)
    assert moments(folder) == ["trajectory/0-0001.json", "trajectory/1-0001.json"]
    quiet_run(recipe("finetune", *SHORT), folder, overwrite=True)
    assert not (folder / "trajectory").exists()


def test_bad_test_file_is_named_by_the_report(watched, tmp_path, command):
    folder = tmp_path / "caf"
    shutil.copytree(watched, folder)
    (folder / "trajectory" / "1-0002.json").write_text("{")
    outcome = command("report", folder, "--out", tmp_path / "page.html")
    assert outcome.code == 2 and "1-0002.json" in outcome.err
    assert not (tmp_path / "page.html").exists()
