"""Held-out images: no step trains on them, all tests are on them, and the test images are not looked at."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from tiny_runs import WORDS, files, quiet_run

from segue.core.config import RunConfig
from segue.core.errors import UserError
from segue.core.manifest import write_manifest
from segue.core.progress import Display
from segue.core.records import read_run
from segue.data.layout import held_out
from segue.engine.data import Data, build_data
from segue.engine.images import chosen_by_name
from segue.engine.recipe import resolve
from segue.plan.plan import count_images
from segue.report.comparison import compare
from segue.report.study import study_csv

QUIET = Display(quiet=True)
SHARE = "scenario.hold_out=0.3"


def recipe(*words: str, method: str = "finetune", split: str = "1-1", mode: str = "overlapped") -> RunConfig:
    return resolve(method, "scenes", split, mode, [*WORDS, *words])


def data(*words: str, **options: str) -> Data:
    return build_data(recipe(*words, **options), QUIET)


def seen(found: Data, step: int, images: np.ndarray) -> np.ndarray:
    """Those of some images that show a class which is known at a step."""
    return images[found.train_present[images][:, list(found.scenario[step].seen)].any(1)]


@pytest.mark.parametrize("mode", ["overlapped", "disjoint", "sequential"])
@pytest.mark.parametrize("method", ["finetune", "joint"])
def test_no_step_trains_on_them_and_every_step_tests_on_them(mode: str, method: str) -> None:
    whole, found = data(mode=mode, method=method), data(SHARE, mode=mode, method=method)
    held = np.flatnonzero(chosen_by_name(found.train_set.keys, 0.3))
    assert len(found.scenario) == (1 if method == "joint" else 3)
    assert 0.15 * len(found.train_set) < len(held) < 0.45 * len(found.train_set)
    for step, images in enumerate(found.train_images):
        assert images.tolist() == [image for image in whole.train_images[step] if image not in held]
        assert not set(images) & set(held)
    assert sum(map(len, found.train_images)) < sum(map(len, whole.train_images))
    for step, images in enumerate(found.test_images):
        assert sorted(images) == sorted(seen(found, step, held)), "all that show a known class, no other"
    assert found.test_set is found.train_set and found.test_present is found.train_present
    listed = [set(step["train"]) for step in found.manifest()["steps"]]
    assert not any(keys & {found.train_set.keys[i] for i in held} for keys in listed)


def test_whether_an_image_is_held_out_depends_on_its_name_alone() -> None:
    keys = [f"image-{number}" for number in range(2000)]
    chosen = chosen_by_name(keys, 0.2)
    assert abs(chosen.mean() - 0.2) < 0.03
    assert (chosen_by_name(keys[::-7], 0.2) == chosen[::-7]).all()
    assert (chosen_by_name(keys, 0.4) >= chosen).all() and not chosen_by_name(keys, 0.0).any()


def test_a_folder_that_is_parted_by_a_hash_has_images_to_hold_out() -> None:
    """By the same hash none of the training images would be in the first share."""
    keys = tuple(f"photo {number}" for number in range(2000))
    for share in (0.1, 0.2, 0.5):
        train = held_out(keys, 0.2, "train")
        assert abs(chosen_by_name(train, share).mean() - share) < 0.05


def test_the_test_images_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    from segue.engine import data as module

    read, index = [], module.index_classes
    monkeypatch.setattr(module, "index_classes", lambda *a: read.append(a[1]) or index(*a))
    data(SHARE)
    assert read == ["train"]


def test_images_of_a_manifest_are_held_out_too(tmp_path: Path) -> None:
    write_manifest(tmp_path / "m.json", data().manifest())
    words = (f"scenario.manifest={tmp_path / 'm.json'}", SHARE)
    for ours, theirs in zip(data(*words).train_images, data(SHARE).train_images, strict=True):
        assert ours.tolist() == theirs.tolist()


def test_a_share_without_a_known_class_is_named() -> None:
    with pytest.raises(UserError, match=r"^No held-out image shows a class that is known at step 0 \("):
        data("scenario.hold_out=0.0001")
    with pytest.raises(UserError, match=r"Step 0 has 0 training images"):
        data("scenario.hold_out=0.9999")
    for wrong in ("1", "-0.1"):
        with pytest.raises(UserError, match=r"'scenario\.hold_out' is"):
            recipe(f"scenario.hold_out={wrong}")


@pytest.mark.parametrize("words", [(), (SHARE,)])
def test_every_so_many_th_test_image(words: tuple[str, ...]) -> None:
    all_of_them, thinned = data(*words), data(*words, "eval.thin=3")
    for whole, images in zip(all_of_them.test_images, thinned.test_images, strict=True):
        assert images.tolist() == [image for image in whole if image % 3 == 0] and len(images)
    for ours, theirs in zip(thinned.train_images, all_of_them.train_images, strict=True):
        assert ours.tolist() == theirs.tolist(), "training is left alone"


def test_only_the_last_step_is_tested_on_all_images() -> None:
    plain, thin = data(), data("eval.between=3")
    for step, (ours, whole) in enumerate(zip(thin.test_images, plain.test_images, strict=True)):
        last = step == len(plain.test_images) - 1
        assert ours.tolist() == [image for image in whole if last or image % 3 == 0] and len(ours)
    assert set(thin.test_images[0]) <= set(thin.test_images[1]), "the same images, step by step"
    far = data("eval.between=1000000").test_images
    assert [len(images) for images in far[:-1]] == [1] * (len(far) - 1)


def test_runs_with_fewer_images_between_stand_in_no_table_with_others(tmp_path: Path) -> None:
    words = ("train.epochs=1", "train.epochs_next=1")
    runs = [
        quiet_run(recipe(*words, *more, split="2-1"), tmp_path / name)
        for name, more in {"plain": (), "thin": ("eval.between=2",)}.items()
    ]
    with pytest.raises(UserError, match="policy 'between'"):
        compare(runs)
    comparison = compare(runs[1:])
    assert "one of every 2 images" in comparison.title and "one of every 2 images" in study_csv(runs[1:])
    (entry,) = comparison.entries
    scores = entry.scores(runs[1], None)
    assert math.isnan(scores.forgetting) and math.isnan(scores.stability), "not on the same images"
    assert not math.isnan(compare(runs[:1]).entries[0].scores(runs[0], None).forgetting)


def test_a_run_with_held_out_images(tmp_path: Path) -> None:
    config = recipe(SHARE, "eval.thin=2", "train.epochs=1", "train.epochs_next=1", split="2-1")
    found = build_data(config, QUIET)
    record = quiet_run(config, tmp_path / "run")
    assert record.finished and "samples/index.json" in files(tmp_path / "run")
    for step in read_run(tmp_path / "run").steps:
        numbers = {"train": len(found.train_images[step.step]), "test": len(found.test_images[step.step])}
        assert step.images == numbers
        assert "0.3" in step.policy["tested"] and "2" in step.policy["tested"], "share, and every how many"
    manifest = json.loads((tmp_path / "run" / "scenario.json").read_text())
    assert manifest == found.manifest()


def test_a_plan_counts_without_them() -> None:
    config = recipe(SHARE)
    assert count_images(config, None, QUIET).images == tuple(map(len, build_data(config, QUIET).train_images))


def test_a_table_of_one_step_says_how_that_step_was_tested(tmp_path: Path, command) -> None:
    quiet_run(recipe("train.epochs=1", "train.epochs_next=1", "eval.between=2", split="2-1"), tmp_path)
    for step, says in {"--step=0": True, "--quiet": False}.items():
        assert ("one of every 2" in " ".join(command("eval", tmp_path, step).out.split())) == says
