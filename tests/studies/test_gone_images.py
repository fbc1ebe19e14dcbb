"""Studies on data of which some are gone: a finished step's images are never asked for again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from own_folder import write_folder

from segue.core.config import RunConfig
from segue.core.errors import UserError
from segue.core.manifest import read_manifest
from segue.core.progress import Display
from segue.core.records import read_run
from segue.engine.recipe import resolve
from segue.engine.run import run
from segue.studies import missing
from segue.studies.first_steps import Manifests, jobs_sharing_first_steps

QUIET = Display(quiet=True)
TINY = (
    *("model.backbone=tiny", "model.head=tiny", "model.output_stride=8", "train.crop=16", "train.workers=0"),
    *("train.batch_size=4", "train.epochs=1", "eval.samples=0"),
)
IDS = {"cat": [0, 1], "dog": [0, 2], "bird": [0, 3]}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Images that show one class each, named after it; two of each test."""
    images = {f"{name}{k}": ids for name, ids in IDS.items() for k in range(8)}
    write_folder(tmp_path / "pets", images, "background\ncat\ndog\nbird\n")
    for part, chosen in (("train", range(2, 8)), ("val", range(2))):
        keys = "\n".join(f"{name}{k}" for name in IDS for k in chosen)
        (tmp_path / "pets" / f"{part}.txt").write_text(keys)
    return tmp_path / "pets"


def recipe(root: Path, method: str, *words: str) -> RunConfig:
    return resolve(method, "folder", "cat,dog/bird", overrides=[*TINY, f"data.root={root}", *words])


def lose(root: Path, names: tuple[str, ...] = ("cat", "dog"), listed: bool = False) -> None:
    """Delete training images; the list forgets them or still names them."""
    for path in root.rglob("*.png"):
        if path.stem[:-1] in names and int(path.stem[-1]) >= 2:
            path.unlink()
    if not listed:
        keys = [key for key in (root / "train.txt").read_text().split() if key[:-1] not in names]
        (root / "train.txt").write_text("\n".join(keys))


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> list[Path | None]:
    """Runs one after the other, without processes of their own; the runs that each starts from."""
    starts: list[Path | None] = []

    def one_by_one(jobs, device, display, keep_going=False, workers=None):
        for job in jobs:
            starts.append(job.start)
            run(job.config, job.folder, resume=job.resume, device="cpu", display=QUIET, start=job.start)

    monkeypatch.setattr(missing, "run_all", one_by_one)
    return starts


@pytest.mark.parametrize("gone", [lambda root: lose(root), lambda root: lose(root, listed=True)])
def test_a_run_takes_the_step_0_of_another_without_its_images(
    gone: Callable[[Path], None], root: Path, tmp_path: Path, in_this_process: list
):
    out = tmp_path / "out"
    assert missing.run_missing({out / "finetune": recipe(root, "finetune")}, out, "cpu", QUIET) is None
    gone(root)
    runs = {out / name: recipe(root, name) for name in ("finetune", "mib")}
    assert missing.run_missing(runs, out, "cpu", QUIET) is None
    assert in_this_process == [None, out / "finetune"] and read_run(out / "mib").finished
    first, second = (read_manifest(place / "scenario.json")["steps"] for place in runs)
    assert first == second and first[0]["images"] == 12


def test_without_a_fitting_step_0_the_images_are_needed(root: Path, tmp_path: Path):
    out = tmp_path / "out"
    missing.run_missing({out / "mib": recipe(root, "mib")}, out, "cpu", QUIET)
    lose(root)
    with pytest.raises(UserError, match="Step 0 has 0 training images"):
        missing.run_missing({out / "other": recipe(root, "mib", "train.seed=7")}, out, "cpu", QUIET)


def test_images_that_came_since_make_another_step_0(root: Path, tmp_path: Path):
    out = tmp_path / "out"
    missing.run_missing({out / "finetune": recipe(root, "finetune")}, out, "cpu", QUIET)
    write_folder(root, {"cat8": [0, 1]}, "background\ncat\ndog\nbird\n")
    with (root / "train.txt").open("a") as file:
        file.write("\ncat8")
    lose(root, ("dog",))
    wanted = {out / "mib": recipe(root, "mib")}
    (job,) = jobs_sharing_first_steps(wanted, out, Manifests(QUIET))
    assert job.start is None
    with pytest.raises(UserError, match="other images"):
        missing.run_missing({out / "finetune": recipe(root, "finetune"), **wanted}, out, "cpu", QUIET)
