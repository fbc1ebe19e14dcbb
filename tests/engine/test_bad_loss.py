"""A loss that is not finite: the run stops, names the term, and no checkpoint ever holds a NaN."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny_runs import ITERATIONS, arguments, checkpoints, files, log_lines

from segue.engine.checkpoint import CheckpointStore, load_tree

METHOD = """
from dataclasses import dataclass
import torch
from segue.losses import cross_entropy
from segue.methods.base import About, Method

@dataclass(frozen=True)
class Config:
    at: int = 5
    step: int = 1
    kind: str = "nan"

class Drifting(Method):
    '''Cross-entropy with a second term that breaks in one iteration.'''
    Config = Config
    about = About("drifting", "a test", 2020)

    def begin_step(self, ctx):
        self.iteration = 0
        self.bad_step = ctx.step.index == self.config.step

    def losses(self, batch):
        logits = self.model(batch.images).logits
        self.iteration += 1
        drift = logits.square().mean() * 0.01
        if self.bad_step and self.iteration == self.config.at:
            if self.config.kind == "gradient":  # 0 in value, NaN in its derivative
                drift = (logits * 0).sum().sqrt()
            else:
                drift = drift * float(self.config.kind)
        return {"ce": cross_entropy(logits, batch.labels), "drift": drift}

METHOD = Drifting
"""


@pytest.fixture
def method(tmp_path: Path) -> Path:
    path = tmp_path / "drifting.py"
    path.write_text(METHOD)
    return path


def assert_finite(folder: Path) -> None:
    entries = CheckpointStore(folder).entries()
    assert entries
    for entry in entries:
        tree = load_tree(entry.path)
        for name, value in tree["method"].items():
            assert torch.isfinite(value.float()).all(), f"{name} of {entry.path.name}"


@pytest.mark.parametrize(("kind", "log_every"), [("nan", 1), ("nan", 100), ("-inf", 100)])
def test_bad_term_stops_the_run(kind, log_every, method, tmp_path, command):
    folder = tmp_path / "run"
    words = [f"method.params.kind={kind!r}", f"train.log_every={log_every}"]
    outcome = command(*arguments(method, folder, *words))
    assert outcome.code == 2
    assert f"The loss term 'drift' became {kind}." in outcome.err and "step 1" in outcome.err
    assert "Traceback" not in outcome.err
    assert checkpoints(folder) == ["step0", "step1-00000003", "step1-00000004"], (
        "the last good one is iteration 4"
    )
    assert_finite(folder)
    assert "steps/0.json" in files(folder) and "steps/1.json" not in files(folder)
    assert [line["step"] for line in log_lines(folder)].count(1) == (4 if log_every == 1 else 0)


def test_bad_term_in_the_first_iteration_leaves_no_checkpoint_and_no_record(method, tmp_path, command):
    words = ["method.params.kind='nan'", "method.params.at=1", "method.params.step=0"]
    outcome = command(*arguments(method, tmp_path / "run", *words))
    assert outcome.code == 2 and "'drift' became nan" in outcome.err
    assert files(tmp_path / "run") == ["log.jsonl", "recipe.yaml", "scenario.json"]
    assert log_lines(tmp_path / "run") == []


@pytest.mark.parametrize("at", [4, 6])
def test_bad_gradient_of_a_good_loss_is_not_stored(at, method, tmp_path, command):
    """The loss of iteration `at` is finite, the weights after it are not; 6 is the step's last iteration."""
    folder = tmp_path / "run"
    words = ["method.params.kind=gradient", f"method.params.at={at}", "train.log_every=100"]
    outcome = command(*arguments(method, folder, *words))
    assert outcome.code == 2
    assert "became nan" in outcome.err and "the last good checkpoint is kept" in outcome.err
    assert checkpoints(folder)[-1] == f"step1-{at - 1:08d}"
    assert_finite(folder)
    assert "steps/1.json" not in files(folder)


def test_run_goes_on_from_the_last_good_checkpoint(method, tmp_path, command):
    """Nothing before the bad iteration is lost; a resumed process counts anew and does not meet it again."""
    folder = tmp_path / "run"
    assert command(*arguments(method, folder, "method.params.kind='nan'", "train.log_every=1")).code == 2
    before = log_lines(folder)
    good = method.read_text()
    method.write_text(good.replace("* 0.01", "* 0.02"))
    refused = command("train", folder, "--resume")
    assert refused.code == 2 and "another recipe or method file" in refused.err
    method.write_text(good)
    assert command("train", folder, "--resume").code == 0
    assert log_lines(folder)[: len(before)] == before and len(log_lines(folder)) == sum(ITERATIONS)
    assert checkpoints(folder) == ["step0", "step1"]
    assert_finite(folder)


@pytest.mark.parametrize(
    "error", ["torch.cuda.OutOfMemoryError('full')", 'RuntimeError("can\'t allocate memory")', "MemoryError"]
)
def test_device_without_memory_ends_with_a_sentence(error, method, tmp_path, command):
    good = method.read_text()
    method.write_text(good.replace("drift = logits", f"raise {error}\n        drift = logits"))
    outcome = command(*arguments(method, tmp_path / "run"))
    assert outcome.code == 2 and "Traceback" not in outcome.err
    assert "not enough memory for step 0" in outcome.err and "train.accumulate" in outcome.err


def test_device_without_memory_for_a_test_ends_with_a_sentence(method, tmp_path, command):
    full = "    def end_step(self, ctx):\n        raise torch.cuda.OutOfMemoryError('full')\n\n"
    method.write_text(method.read_text().replace("    def losses", f"{full}    def losses"))
    outcome = command(*arguments(method, tmp_path / "run", "train.epochs=1"))
    assert outcome.code == 2 and "Traceback" not in outcome.err and "eval.size" in outcome.err
