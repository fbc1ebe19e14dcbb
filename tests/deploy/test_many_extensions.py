"""Classes one after the other: a step takes hardly longer than the first, and adds what a class needs."""

from __future__ import annotations

import collections
import itertools
import statistics
import time
from pathlib import Path

import pytest
from pets import QUIET, only, train

import segue
from segue.core import yaml_text
from segue.methods.base import Method
from segue.models import classifier

STEPS = 20
MOST = 1.5
"""bound on the ratio of late and early steps; with a teacher for every step passed through it was 2.4"""


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@pytest.mark.slow
@pytest.mark.parametrize("method", ["caf", "mib"])
def test_time_and_size_stay_flat(everything: Path, tmp_path: Path, method: str):
    segue.load(train(method, "cat,dog", everything, tmp_path / "run")).save(tmp_path / "0")
    data, seconds, models, runs = only(tmp_path / "new", "b", "bird"), [], [], []
    for step in range(1, STEPS + 1):
        (data / "classes.txt").write_text(f"background\nnumber {step:02d}")
        began = time.process_time()  # others may use the machine, too
        segue.extend(
            *(tmp_path / f"{step - 1}", data, tmp_path / f"{step}"),
            overrides=["train.epochs_next=1"],
            display=QUIET,
            device="cpu",
            sure=True,
        )
        seconds.append(time.process_time() - began)
        models.append(size(tmp_path / f"{step}"))
        runs.append(size(tmp_path / f"{step}-run"))
    early, late = statistics.median(seconds[:5]), statistics.median(seconds[-5:])
    added = [after - before for before, after in itertools.pairwise(models)]
    print(f"{method}: {early:.3f} s of CPU in steps 1-5, {late:.3f} s in steps 16-20;")
    print(f"model folder {models[0]:,} -> {models[-1]:,} bytes, {added[0]:,} to {max(added):,} a step;")
    print(f"run folder {runs[0]:,} -> {runs[-1]:,} bytes")
    assert late < MOST * early
    assert max(added) - min(added) < 1000, "a class adds what it keeps, and what came before adds nothing"
    assert segue.load(tmp_path / f"{STEPS}").classes[-1] == f"number {STEPS}"


def test_an_earlier_step_costs_three_parts_of_the_classifier(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """They are built for the model, for the run and for the grown model; all else is there once, or twice."""
    data, done = only(tmp_path / "new", "b", "bird"), collections.Counter()

    def count(owner: object, name: str):
        real = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *args, **words: done.update([name]) or real(*args, **words))

    count(classifier.GrowingClassifier, "grow")
    count(classifier, "copy_background")
    count(Method, "deployed")
    count(yaml_text, "read_ordinary")
    for learned in (1, 2, 3):
        (data / "classes.txt").write_text(f"background\nnumber {learned}")
        grown = tmp_path / f"{learned}"
        words = {"display": QUIET, "device": "cpu", "sure": True}
        segue.extend(model, data, grown, overrides=["train.epochs_next=1"], **words)
        once = {"copy_background": 1, "deployed": 2, "read_ordinary": 2}
        assert done == {"grow": 3 * learned + 2, **once}, "deployed: teacher, grown model; read: the recipe"
        done.clear()
        model = grown
