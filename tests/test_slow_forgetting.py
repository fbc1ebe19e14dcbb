"""The point of it all, on scenes and over three seeds: fine-tuning forgets, CAF keeps, Joint is the bound.

About ten minutes on two cores: pytest -m slow tests/test_slow_forgetting.py
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from segue.core.metrics import RunScores, run_scores
from segue.core.progress import Display
from segue.engine.recipe import resolve
from segue.studies.jobs import Job
from segue.studies.pool import run_all

pytestmark = pytest.mark.slow

METHODS = ("finetune", "mib", "caf", "joint")
SEEDS = (0, 1, 2)
SPLIT, NUM_FIRST = "5-2", 5
TWO_POINTS = 0.02

Scores = dict[str, list[RunScores]]


@pytest.fixture(scope="module")
def scores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scores]:
    """Scores of each method, one per seed, with the default recipes."""
    home = tmp_path_factory.mktemp("forgetting")
    found: Scores = {method: [] for method in METHODS}
    jobs = [
        Job(resolve(method, "scenes", SPLIT, overrides=[f"train.seed={seed}"]), home / f"{method}-{seed}")
        for method in METHODS
        for seed in SEEDS
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEGUE_CACHE", str(home / "cache"))
        for record in run_all(jobs, "cpu", Display(quiet=True)):
            found[record.method].append(run_scores([step.matrix for step in record.steps], NUM_FIRST))
    for method, runs in found.items():
        each = ", ".join(
            f"{100 * r.final.old:.1f} / {100 * r.final.new:.1f} / {100 * r.final.all:.1f}" for r in runs
        )
        print(f"{method:9} old / new / all: {each}; kept: {[round(r.stability, 3) for r in runs]}")
    yield found


def final_all(scores: Scores, method: str) -> np.ndarray:
    return np.array([each.final.all for each in scores[method]])


def test_fine_tuning_forgets(scores):
    for each in scores["finetune"]:
        assert each.stability < 1 / 3, "less than a third of the step-0 mIoU of the first classes is left"
        assert each.final.new > each.final.old, "it did learn the new classes"


def test_caf_keeps(scores):
    for each in scores["caf"]:
        assert each.stability >= 0.75


def test_caf_is_not_behind_mib(scores):
    caf, mib = final_all(scores, "caf"), final_all(scores, "mib")
    noise = max(2 * caf.std(ddof=1), 2 * mib.std(ddof=1), TWO_POINTS)
    assert caf.mean() >= mib.mean() - noise


def test_joint_is_the_upper_bound(scores):
    joint = final_all(scores, "joint")
    for method in METHODS[:-1]:
        assert joint.mean() > final_all(scores, method).mean(), method


def test_caf_is_far_above_fine_tuning(scores):
    assert (final_all(scores, "caf") > 2 * final_all(scores, "finetune")).all()
