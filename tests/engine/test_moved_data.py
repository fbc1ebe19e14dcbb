"""Data that have moved or are gone: a finished step's images are never asked for again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from own_folder import write_folder
from tiny_runs import assert_equal_runs, assert_equal_trees, quiet_run, run_until, weights

from segue.core.config import RunConfig
from segue.core.errors import UserError
from segue.core.manifest import read_manifest, write_manifest
from segue.core.progress import Display
from segue.engine.recipe import resolve
from segue.engine.restore import evaluate_run

TINY = (
    "model.backbone=tiny",
    "model.head=tiny",
    "model.output_stride=8",
    "train.crop=16",
    "train.batch_size=4",
    "train.epochs=1",
    "train.epochs_next=2",
    "train.save_seconds=0",
    "eval.samples=1",
)
FIRST = ("cat", "dog")
IDS = {"cat": [0, 1], "dog": [0, 2], "bird": [0, 3]}
QUIET = Display(quiet=True)


def pets(root: Path) -> Path:
    """Images that show one class each, named after it, with lists of those that train and test."""
    images = {f"{name}{k}": ids for name, ids in IDS.items() for k in range(8)}
    write_folder(root, images, "background\ncat\ndog\nbird\n")
    for part, chosen in (("train", range(2, 8)), ("val", range(2))):
        (root / f"{part}.txt").write_text("\n".join(f"{name}{k}" for name in IDS for k in chosen))
    return root


def lose(root: Path, *names: str) -> None:
    """Delete the training images of some classes; the lists still name them."""
    for path in root.rglob("*.png"):
        if path.stem[:-1] in names and int(path.stem[-1]) >= 2:
            path.unlink()


def lose_and_forget(root: Path, *names: str) -> None:
    """Delete them from the lists as well."""
    lose(root, *names)
    keys = [key for key in (root / "train.txt").read_text().split() if key[:-1] not in names]
    (root / "train.txt").write_text("\n".join(keys))


def recipe(root: Path, method: str = "mib", split: str = "cat,dog/bird", *words: str) -> RunConfig:
    return resolve(method, "folder", split, overrides=[*TINY, f"data.root={root}", *words])


def images_of(folder: Path, step: int) -> list[str]:
    return read_manifest(folder / "scenario.json")["steps"][step]["train"]


@pytest.mark.parametrize("mode", ["overlapped", "disjoint", "divided"])
@pytest.mark.parametrize("gone", [lose, lose_and_forget])
def test_resume_without_the_images_of_step_0(gone: Callable, mode: str, tmp_path: Path) -> None:
    root = pets(tmp_path / "pets")
    config = recipe(root, "mib", "cat,dog/bird", f"scenario.mode={mode}")
    quiet_run(config, tmp_path / "straight")
    run_until(config, tmp_path / "run", 5)  # step 0 has 3 iterations, step 1 has 4
    gone(root, *FIRST)
    quiet_run(config, tmp_path / "run", resume=True)
    assert_equal_runs(tmp_path / "run", tmp_path / "straight")


def test_resume_on_other_images_of_the_step_is_refused(tmp_path: Path) -> None:
    root = pets(tmp_path / "pets")
    run_until(recipe(root), tmp_path / "run", 5)
    lose(root, *FIRST)
    (root / "train.txt").write_text("\n".join((root / "train.txt").read_text().split()[:-1]))
    with pytest.raises(UserError, match=r"other images: step 1 had 6 and now has 5 \(1 differ\)"):
        quiet_run(recipe(root), tmp_path / "run", resume=True)
    lose(root, "bird")
    with pytest.raises(UserError, match="bird"):
        quiet_run(recipe(root), tmp_path / "run", resume=True)


def test_inside_step_0_its_images_are_needed(tmp_path: Path) -> None:
    root = pets(tmp_path / "pets")
    run_until(recipe(root), tmp_path / "run", 2)
    lose_and_forget(root, "cat")
    with pytest.raises(UserError, match="other images: step 0 had 12 and now has 6"):
        quiet_run(recipe(root), tmp_path / "run", resume=True)


def test_a_memory_of_old_images_needs_them(tmp_path: Path) -> None:
    root = pets(tmp_path / "pets")
    config = recipe(root, "dft", "cat,dog/bird", "method.params.memory.size=4")
    run_until(config, tmp_path / "run", 5)
    lose_and_forget(root, "cat")
    with pytest.raises(UserError, match="other images: step 0 had 12 and now has 6"):
        quiet_run(config, tmp_path / "run", resume=True)


def test_a_finished_run_needs_no_data(tmp_path: Path) -> None:
    root = pets(tmp_path / "pets")
    done = quiet_run(recipe(root), tmp_path / "run")
    shutil.rmtree(root)
    assert quiet_run(recipe(root), tmp_path / "run", resume=True) == done


@pytest.mark.parametrize("method", ["mib", "caf", "ewc"])
@pytest.mark.parametrize("gone", [lose, lose_and_forget])
def test_start_from_a_run_whose_images_are_gone(gone: Callable, method: str, tmp_path: Path) -> None:
    """Another split and another place: the weights are those of a run that had all images."""
    quiet_run(recipe(pets(tmp_path / "pets"), method), tmp_path / "straight")
    quiet_run(recipe(tmp_path / "pets", method, "cat,dog"), tmp_path / "first")
    shutil.move(tmp_path / "pets", moved := tmp_path / "moved")
    gone(moved, *FIRST)
    quiet_run(recipe(moved, method), tmp_path / "second", start=tmp_path / "first")
    assert images_of(tmp_path / "second", 0) == images_of(tmp_path / "first", 0)
    for step in (0, 1):
        ours, theirs = (weights(tmp_path / name, step) for name in ("second", "straight"))
        assert_equal_trees(ours, theirs)


def test_a_method_that_reads_step_0_again_says_what_it_lacks(tmp_path: Path) -> None:
    """Features to rehearse are made from images, unless the other run has kept the same."""
    root, kept = pets(tmp_path / "pets"), "method.params.rehearsal={weight: 1.0, per_class: 4, background: 8}"
    quiet_run(recipe(root, "caf", "cat,dog", "method.params.rehearsal.weight=0"), tmp_path / "first")
    lose_and_forget(root, "cat")
    with pytest.raises(UserError, match="images of step 0, but 6 of 12 are gone"):
        quiet_run(recipe(root, "caf", "cat,dog/bird", kept), tmp_path / "run", start=tmp_path / "first")


@pytest.mark.parametrize("words", [("scenario.hold_out=0.3",), ("scenario.mode=disjoint",)])
def test_another_rule_is_compared_by_the_images(words: tuple[str, ...], tmp_path: Path) -> None:
    """Their images are not simply believed to be ours."""
    root = pets(tmp_path / "pets")
    write_folder(root, {"cat7": [1, 3]}, "background\ncat\ndog\nbird\n")  # not for disjoint
    quiet_run(recipe(root, "mib", "cat,dog"), tmp_path / "first")
    with pytest.raises(UserError, match="images: '12 "):
        quiet_run(recipe(root, "mib", "cat,dog/bird", *words), tmp_path / "run", start=tmp_path / "first")


def test_a_manifest_may_name_images_that_have_trained_already(tmp_path: Path) -> None:
    root, listed = pets(tmp_path / "pets"), tmp_path / "listed.json"
    quiet_run(recipe(root), tmp_path / "first")
    write_manifest(listed, read_manifest(tmp_path / "first" / "scenario.json"))
    config = recipe(root, "mib", "cat,dog/bird", f"scenario.manifest={listed}")
    quiet_run(config, tmp_path / "straight")
    run_until(config, tmp_path / "resumed", 5)
    lose_and_forget(root, *FIRST)
    with pytest.raises(UserError, match="The manifest names 'cat2'"):
        quiet_run(config, tmp_path / "anew")
    quiet_run(config, tmp_path / "resumed", resume=True)
    assert_equal_runs(tmp_path / "resumed", tmp_path / "straight")
    quiet_run(config, tmp_path / "started", start=tmp_path / "first")
    assert_equal_trees(weights(tmp_path / "started", 1), weights(tmp_path / "straight", 1))


@pytest.mark.parametrize("hold_out", [0, 0.3])
def test_eval_needs_the_test_images_alone(hold_out: float, tmp_path: Path) -> None:
    root = pets(tmp_path / "pets")
    config = recipe(root, "mib", "cat,dog/bird", f"scenario.hold_out={hold_out}")
    record = quiet_run(config, tmp_path / "run")
    trained = {key for step in (0, 1) for key in images_of(tmp_path / "run", step)}
    shutil.move(root, moved := tmp_path / "moved")
    for path in moved.rglob("*.png"):
        if path.stem in trained:
            path.unlink()
    found, *_ = evaluate_run(tmp_path / "run", overrides=[f"data.root={moved}"], device="cpu", display=QUIET)
    assert np.array_equal(next(iter(found.values())), record.steps[-1].matrix)


def test_eval_without_a_test_image_says_so(tmp_path: Path) -> None:
    root = pets(tmp_path / "pets")
    quiet_run(recipe(root), tmp_path / "run")
    (root / "val.txt").write_text("bird0\nbird1")
    with pytest.raises(UserError, match="No test image shows a class that is known at step 0"):
        evaluate_run(tmp_path / "run", 0, device="cpu", display=QUIET)


def test_images_that_are_gone_do_not_spoil_the_index(tmp_path: Path) -> None:
    """Whoever needs them afterwards is told."""
    root = pets(tmp_path / "pets")
    run_until(recipe(root), tmp_path / "run", 5)
    lose(root, *FIRST)
    quiet_run(recipe(root), tmp_path / "run", resume=True)
    with pytest.raises(UserError, match="cat2"):
        quiet_run(recipe(root), tmp_path / "anew")
