"""Testing a finished run by several strategies: the right weights in the right place, and clear refusals."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_runs import recipe, weights

from segue.core.classes import IGNORE
from segue.core.errors import UserError
from segue.core.metrics import iou, step_scores
from segue.core.progress import Display
from segue.core.records import read_run
from segue.engine.build import build_method
from segue.engine.checkpoint import CheckpointStore, load_tree, save_tree
from segue.engine.data import build_data
from segue.engine.restore import evaluate_run
from segue.models.segmenter import Segmenter

CPU, QUIET = torch.device("cpu"), Display(quiet=True)
ALL = ("skip", "zero", "concat")


@pytest.fixture(scope="module")
def fusing(finished, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of CAF whose fusion listens to the old model and whose classes differ in what they look for.

    A few iterations leave the fusion at "take the new features" and every pixel background.
    """
    folder = tmp_path_factory.mktemp("fusing") / "caf"
    shutil.copytree(finished("caf"), folder)
    path = CheckpointStore(folder).path(1)
    tree, generator = load_tree(path), torch.Generator().manual_seed(0)
    weight = tree["method"]["model.fusion.fusion.weight"]
    weight[:, : len(weight)] = torch.randn(weight[:, : len(weight)].shape, generator=generator)
    for name, value in tree["method"].items():
        if name.startswith("model.classifier."):
            drawn = torch.randn(value.shape, generator=generator)
            tree["method"][name] = drawn - drawn.mean(1, keepdim=True) if value.dim() > 1 else 0 * drawn
    save_tree(path, tree)
    return folder


def model_after(folder: Path, step: int) -> Segmenter:
    """The whole model of a run after a step, with the weights of that step's checkpoint."""
    method = build_method(recipe("caf"), CPU)
    for grown in build_data(recipe("caf"), QUIET).scenario[: step + 1]:
        method.model.grow(grown, balanced=False)
    state = {name: value for name, value in weights(folder, step).items() if name.startswith("model.")}
    method.model.load_state_dict({name.removeprefix("model."): value for name, value in state.items()})
    return method.model.eval()


@torch.no_grad()
def confusion_by_hand(student: Segmenter, teacher: Segmenter | None, zeros: bool = False) -> np.ndarray:
    """z of one model, z of another, the layer, the head: image by image, pixel by pixel."""
    confusion = np.zeros((4, 4), dtype=np.int64)
    layer = student.fusion
    for batch in build_data(recipe("caf"), QUIET).test_batches(1, CPU):
        z = student.encode(batch.images)[-1]
        new = layer.project_new(z)
        fused = new
        if teacher is not None or zeros:
            old = torch.zeros_like(new) if zeros else layer.project_old(teacher.encode(batch.images)[-1])
            fused = layer.fusion(torch.cat([old, new], dim=1))
        logits = student.classifier(student.refiner(fused + layer.structured(fused) * fused))
        logits = torch.nn.functional.interpolate(logits, size=(32, 32), mode="bilinear")
        for truth, guess in zip(batch.labels.flatten().tolist(), logits.argmax(1).flatten(), strict=True):
            if truth != IGNORE:
                confusion[truth, guess] += 1
    return confusion


def test_strategies_equal_an_evaluation_by_hand_from_both_checkpoints(fusing):
    found, names, num_first = evaluate_run(fusing, display=QUIET, strategies=ALL)
    assert tuple(found) == ALL and len(names) == 4 and num_first == 2
    student, teacher = model_after(fusing, 1), model_after(fusing, 0)
    by_hand = {
        "skip": confusion_by_hand(student, None),
        "zero": confusion_by_hand(student, None, zeros=True),
        "concat": confusion_by_hand(student, teacher),
    }
    for name in ALL:
        differing = np.abs(found[name] - by_hand[name]).sum() // 2
        assert differing <= 3, f"{name}: {differing} pixels, more than rounding explains"
    matrices = [*by_hand.values(), confusion_by_hand(student, student)]
    for i, one in enumerate(matrices):
        for other in matrices[:i]:
            assert np.abs(one - other).sum() > 100, "another strategy or another teacher is seen here"


def test_skip_is_what_the_record_holds(finished):
    steps = read_run(finished("caf")).steps
    for step in (0, 1):
        found, _, _ = evaluate_run(finished("caf"), step, display=QUIET, strategies=["skip"])
        assert found["skip"].tolist() == [list(row) for row in steps[step].confusion]
    plain, _, _ = evaluate_run(finished("caf"), display=QUIET)
    assert list(plain) == ["skip"], "what predict() does, if nothing is asked for"


def test_strategies_come_in_the_order_asked_for(finished):
    found, _, _ = evaluate_run(finished("caf"), display=QUIET, strategies=["concat", "skip"])
    assert list(found) == ["concat", "skip"]


def test_old_model_needs_the_checkpoint_of_the_step_before(finished, tmp_path):
    shutil.copytree(finished("caf"), tmp_path / "caf")
    CheckpointStore(tmp_path / "caf").path(0).unlink()
    evaluate_run(tmp_path / "caf", display=QUIET)
    with pytest.raises(UserError, match=r"keeps no checkpoint of step 0; kept: \[1\]"):
        evaluate_run(tmp_path / "caf", display=QUIET, strategies=["concat"])


@pytest.mark.parametrize(
    ("method", "words", "message"),
    [
        (
            "caf",
            ["--strategies", "skip,concta"],
            "by 'concta' at step 1; it can by: skip, zero, concat.",
        ),
        ("caf", ["--step", "0", "--strategies", "skip,concat"], "'concat' at step 0; it can by: skip."),
        ("caf", ["--step", "0", "--strategies", "zero"], "'zero' at step 0; it can by: skip."),
        ("caf", ["--strategies", "skip,"], "cannot predict by ''"),
        ("mib", ["--strategies", "skip"], "mib cannot predict by 'skip' at step 1; it can by: predict."),
    ],
)
def test_strategy_that_there_is_not_is_refused(finished, command, method, words, message):
    outcome = command("eval", finished(method), *words)
    assert outcome.code == 2 and message in " ".join(outcome.err.split())


def row(text: str, label: str) -> list[str]:
    line = next(line for line in text.splitlines() if re.search(rf"^\W*{re.escape(label)}\b", line))
    return re.findall(r"\d+\.\d|-(?=\s|$)", line)


def test_command_shows_a_column_per_strategy(fusing, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    outcome = command("eval", fusing, "--strategies", "skip, zero,concat,skip")
    assert outcome.code == 0
    head = next(line for line in outcome.out.splitlines() if "class" in line)
    assert re.findall(r"\w+", head) == ["class", *ALL]
    found, names, num_first = evaluate_run(fusing, display=QUIET, strategies=ALL)
    rows = []
    for mean in ("old", "new", "all"):
        rows.append([f"{100 * getattr(step_scores(found[name], num_first), mean):.1f}" for name in ALL])
        assert row(outcome.out, mean) == rows[-1]
    assert len(set(zip(*rows, strict=True))) == 3, "no two columns are equal"
    assert row(outcome.out, names[1]) == [f"{100 * iou(found[name])[1]:.1f}" for name in ALL]


def test_command_without_strategies_has_one_column(finished, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    outcome = command("eval", finished("caf"))
    head = next(line for line in outcome.out.splitlines() if "class" in line)
    assert outcome.code == 0 and re.findall(r"\w+", head) == ["class", "IoU"]
