"""Results are files: what a run writes, and how it is read again. Every table and picture is made from these
alone.

A run folder holds `recipe.yaml` (resolved), `scenario.json` (the manifest), `log.jsonl`, `steps/<k>.json`
(one record per step), `trajectory/<k>-<epoch>.json` (tests during a step, if asked for), `samples/`
(pictures of a few test images), `counts/<k>.npz` (how it answered on every test image: image_counts.py),
`memory/<k>.json` (the exemplars kept after a step, if the method replays some) and `checkpoints/`. A study
may be packed into one file instead (packed.py).
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Annotated, Any, Final, Literal

import numpy as np
from pydantic import Field

from segue.core.checked_json import checked, read_checked
from segue.core.errors import UserError, brief, reason
from segue.core.packed import packed_run
from segue.core.yaml_text import read_yaml

RECORD_FORMAT: Final = "segue-record-1"
TRAJECTORY_FORMAT: Final = "segue-trajectory-1"
MOST_PIXELS = 2**53
"""pixels of a whole confusion matrix: no test has more, and every number up to it is exact"""
Whole = Annotated[int, Field(ge=0, le=MOST_PIXELS)]
Matrix = tuple[tuple[Whole, ...], ...]


def refuse_links(path: Path, root: Path) -> None:
    """A run writes into its own folder only: neither a file below it nor a folder on the way is a link."""
    for place in (path, *path.parents):
        if place == root:
            return
        if place.is_symlink():
            raise UserError(f"{place} is a link: nothing is written through it. Remove it, and go on.")
    raise AssertionError(f"{path} is not in {root}")


@contextmanager
def atomic_file(path: str | Path, root: Path | None = None) -> Iterator[IO[bytes]]:
    """Write a file whole or not at all: a temporary file beside it, synced, then renamed.

    A link is followed, and stays a link, unless `root` says which folder the file must not leave.
    """
    path, temporary = Path(path), None
    try:
        if root is not None:
            refuse_links(path, root)
        if (path.exists() and not path.is_file()) or "\0" in str(path):
            raise UserError(f"{path} is not an ordinary file: nothing is written there.")
        path = path.resolve()
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(f"Cannot write {path}: {reason(error)}. Nothing was changed there.") from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


def append_file(path: Path, root: Path) -> IO[bytes]:
    """A file that grows line by line; `root` is the folder that it must not leave."""
    refuse_links(path, root)
    return open(path, "ab")


def write_text(path: str | Path, text: str, root: Path | None = None) -> None:
    """Text in UTF-8, whole or not at all; what is none, as in the name of a file, is escaped as in JSON."""
    with atomic_file(path, root) as file:
        file.write(text.encode("utf-8", "backslashreplace"))


def write_json(path: str | Path, document: Any, root: Path | None = None) -> None:
    write_text(path, json.dumps(document, indent=1, ensure_ascii=False) + "\n", root)


def check_matrix(confusion: Matrix, name: str) -> None:
    """Refuse what is not square, is empty, or counts more pixels than there can be."""
    if not confusion or any(len(row) != len(confusion) for row in confusion):
        raise UserError(f"{name} is no confusion matrix: its rows do not have the length of its columns")
    if sum(map(sum, confusion)) > MOST_PIXELS:
        raise UserError(f"{name} is no confusion matrix: it counts more than {MOST_PIXELS:,} pixels")


@dataclass(frozen=True)
class StepRecord:
    """What is known after one step. `confusion` is rows truth, columns prediction, channel 0 background."""

    run: str
    method: str
    dataset: str
    step: Whole
    classes: tuple[str, ...]
    """names of the model's channels, background first"""
    groups: tuple[tuple[str, ...], ...]
    """names of the classes that arrive at each step of the split"""
    confusion: Matrix
    policy: dict[str, str]
    seed: Annotated[int, Field(ge=0)]
    versions: dict[str, str]
    recipe_hash: str
    losses: dict[str, float]
    """mean of each loss term over the last epoch of the step"""
    seconds: dict[str, float]
    """train and eval wall time"""
    peak_memory: Whole
    """bytes: device peak on CUDA, resident-set peak of the process elsewhere"""
    images: dict[str, Whole]
    """how many images trained and tested the step; with replay also how many exemplars or kept images did"""
    parameters: dict[str, Whole]
    """trainable and total parameters of the model"""
    offline: bool = False
    shown: dict[str, Whole] = field(default_factory=dict)
    """number of training images that show each new class; empty: not known"""
    kept: Whole | None = None
    """bytes of the method's state that outlives the step, beside the model and images; None: not known"""
    format: Literal["segue-record-1"] = RECORD_FORMAT

    def __post_init__(self) -> None:
        check_matrix(self.confusion, "the confusion matrix")
        if len(self.confusion) != len(self.classes):
            raise UserError(f"the confusion matrix does not fit the {len(self.classes)} channels")

    @property
    def matrix(self) -> np.ndarray:
        return np.array(self.confusion, dtype=np.int64)

    def write(self, folder: str | Path) -> None:
        folder = Path(folder)
        write_json(folder / "steps" / f"{self.step}.json", vars(self), folder)


def read_record(path: str | Path) -> StepRecord:
    return read_checked(StepRecord, path, "step record")


@dataclass(frozen=True)
class TrajectoryRecord:
    """A test during a step, after some of its epochs, by each way to predict that the method has."""

    step: Whole
    epoch: Whole
    num_first: Whole
    """classes of step 0"""
    confusions: dict[str, Matrix]
    format: Literal["segue-trajectory-1"] = TRAJECTORY_FORMAT

    def __post_init__(self) -> None:
        for name, confusion in self.confusions.items():
            check_matrix(confusion, f"'{name}'")

    def matrix(self, strategy: str) -> np.ndarray:
        return np.array(self.confusions[strategy], dtype=np.int64)

    def write(self, folder: str | Path) -> None:
        folder = Path(folder)
        path = folder / "trajectory" / f"{self.step}-{self.epoch:04d}.json"
        write_json(path, vars(self), folder)


def read_trajectory(folder: str | Path) -> tuple[TrajectoryRecord, ...]:
    """All tests during steps of a run, in their order."""
    paths = sorted((Path(folder) / "trajectory").glob("*.json"))
    found = (read_checked(TrajectoryRecord, path, "record of a test during a step") for path in paths)
    return tuple(sorted(found, key=lambda record: (record.step, record.epoch)))


@dataclass(frozen=True)
class RunRecord:
    """A run folder as its readers see it."""

    folder: Path
    recipe: dict[str, Any]
    steps: tuple[StepRecord, ...]

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def method(self) -> str:
        return str(self.recipe["method"]["name"])

    @property
    def finished(self) -> bool:
        if not self.steps:
            return False
        last = self.steps[-1]
        return last.offline or last.step == len(last.groups) - 1


def is_run(path: str | Path) -> bool:
    """Whether a path is a run folder: one with a recipe. A word too long for a path is none."""
    try:
        return (Path(path) / "recipe.yaml").is_file()
    except OSError:
        return False


def read_run(folder: str | Path) -> RunRecord:
    """Read the recipe and the records of the steps that are finished so far.

    Examples:
        >>> import segue
        >>> record = segue.read_run("runs/first")
        >>> record.method, len(record.steps), record.finished
        ('caf', 2, True)
        >>> record.steps[1].matrix.shape  # confusion matrix: rows truth, columns prediction
        (4, 4)
    """
    folder = Path(folder)
    recipe = read_recipe(folder)
    check_sections(recipe, folder / "recipe.yaml")
    if is_run(folder):
        paths = sorted(
            (folder / "steps").glob("*.json"),
            key=lambda path: int(path.stem) if path.stem.isdecimal() else -1,
        )
        records = tuple(read_record(path) for path in paths)
    else:
        steps = (packed_run(folder) or {})["steps"]
        paths = [folder / "steps" / f"{step}.json" for step in range(len(steps))]
        records = tuple(
            checked(StepRecord, json.dumps(step).encode(), path, "step record")
            for step, path in zip(steps, paths, strict=True)
        )
    first = _learned_before(recipe)
    if [record.step for record in records] != list(range(first, first + len(records))):
        raise UserError(
            f"{folder}/steps should hold {first}.json, {first + 1}.json, ..."
            f" but holds {[path.name for path in paths]}."
        )
    if records and records[-1].step >= len(records[-1].groups):
        raise UserError(f"{paths[-1]}: there is no such step, classes arrive in {len(records[-1].groups)}.")
    return RunRecord(folder, recipe, records)


def check_sections(recipe: Mapping[Any, Any], path: Path) -> None:
    """Refuse a stored recipe whose sections are none, or which does not name its method."""
    for name, section in recipe.items():
        if not isinstance(name, str) or not isinstance(section, dict):
            raise UserError(f"{path}: {brief(name)} is {brief(section)}, no section of settings.")
        if wrong := [key for key in section if not isinstance(key, str)]:
            raise UserError(f"{path}: the section '{name}' has the key {brief(wrong[0])}, which is no name.")
    if not isinstance(recipe.get("method", {}).get("name"), str):
        raise UserError(f"{path} does not say which method was run.")
    learned = recipe.get("scenario", {}).get("learned", 0)
    if type(learned) is not int or learned < 0:
        raise UserError(f"{path}: 'scenario.learned' is {brief(learned)}, no number of steps.")


def has_records(folder: Path) -> bool:
    """Whether a folder is that of a run, or a packed study has a run in its place."""
    return is_run(folder) or packed_run(folder) is not None


def read_recipe(folder: Path) -> dict[str, Any]:
    """The resolved recipe of a run, from its folder or from the packed study that stands for it."""
    if is_run(folder):
        return read_yaml(folder / "recipe.yaml")
    if (packed := packed_run(folder)) is None:
        raise UserError(f"{folder} is not a run folder: it has no recipe.yaml.")
    return dict(packed["recipe"])


def _learned_before(recipe: Mapping[str, Any]) -> int:
    """The first step that a run trains: 0, unless it began with a model that had learned some steps."""
    return recipe.get("scenario", {}).get("learned", 0)
