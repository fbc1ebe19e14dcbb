"""Results are files: what a run writes, and how it is read again. Every table and picture is made from these
alone.

A run folder holds `recipe.yaml` (resolved), `scenario.json` (the manifest), `log.jsonl`, `steps/<k>.json`
(one record per step), `trajectory/<k>-<epoch>.json` (tests during a step, if asked for), `samples/`
(pictures of a few test images), `memory/<k>.json` (the exemplars kept after a step, if the method replays
some) and `checkpoints/`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import yaml

from segue.core.errors import UserError

RECORD_FORMAT = "segue-record-1"
TRAJECTORY_FORMAT = "segue-trajectory-1"


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
        raise UserError(
            f"Cannot write {path}: {error.strerror or error}. Nothing was changed there."
        ) from error
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


@dataclass(frozen=True)
class StepRecord:
    """What is known after one step. `confusion` is rows truth, columns prediction, channel 0 background."""

    run: str
    method: str
    dataset: str
    step: int
    classes: tuple[str, ...]
    """names of the model's channels, background first"""
    groups: tuple[tuple[str, ...], ...]
    """names of the classes that arrive at each step of the split"""
    confusion: tuple[tuple[int, ...], ...]
    policy: dict[str, str]
    seed: int
    versions: dict[str, str]
    recipe_hash: str
    losses: dict[str, float]
    """mean of each loss term over the last epoch of the step"""
    seconds: dict[str, float]
    """train and eval wall time"""
    peak_memory: int
    """bytes: device peak on CUDA, resident-set peak of the process elsewhere"""
    images: dict[str, int]
    """how many images trained and tested the step; with replay also how many exemplars or kept images did"""
    parameters: dict[str, int]
    """trainable and total parameters of the model"""
    offline: bool = False
    shown: dict[str, int] = field(default_factory=dict)
    """number of training images that show each new class; empty: not known"""
    format: str = field(default=RECORD_FORMAT)

    @property
    def matrix(self) -> np.ndarray:
        return np.array(self.confusion, dtype=np.int64)

    def write(self, folder: str | Path) -> None:
        folder = Path(folder)
        write_json(folder / "steps" / f"{self.step}.json", dataclasses.asdict(self), folder)


def read_record(path: str | Path) -> StepRecord:
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
        if document.pop("format", None) != RECORD_FORMAT:
            raise UserError(f"{path} is not a step record of this version ({RECORD_FORMAT}).")
        for name in ("groups", "confusion"):
            document[name] = tuple(tuple(row) for row in document[name])
        record = StepRecord(**document | {"classes": tuple(document["classes"])})
        if record.matrix.shape != (len(record.classes),) * 2:
            raise UserError(f"{path}: the confusion matrix does not fit the {len(record.classes)} channels.")
        return record
    except OSError as error:
        raise UserError(f"Cannot read the record {path}: {error.strerror}.") from error
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path} is not a step record: {error}.") from error


@dataclass(frozen=True)
class TrajectoryRecord:
    """A test during a step, after some of its epochs, by each way to predict that the method has."""

    step: int
    epoch: int
    num_first: int
    """classes of step 0"""
    confusions: dict[str, tuple[tuple[int, ...], ...]]
    format: str = field(default=TRAJECTORY_FORMAT)

    def matrix(self, strategy: str) -> np.ndarray:
        return np.array(self.confusions[strategy], dtype=np.int64)

    def write(self, folder: str | Path) -> None:
        folder = Path(folder)
        path = folder / "trajectory" / f"{self.step}-{self.epoch:04d}.json"
        write_json(path, dataclasses.asdict(self), folder)


def read_trajectory(folder: str | Path) -> tuple[TrajectoryRecord, ...]:
    """All tests during steps of a run, in their order."""
    found = []
    for path in sorted((Path(folder) / "trajectory").glob("*.json")):
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            if document.get("format") != TRAJECTORY_FORMAT:
                raise ValueError(f"its format is not {TRAJECTORY_FORMAT}")
            record = TrajectoryRecord(**document)
            if not all(type(value) is int for value in (record.step, record.epoch, record.num_first)):
                raise ValueError("step, epoch and num_first are whole numbers")
            for name in record.confusions:
                counts = np.array(record.confusions[name])
                square = counts.ndim == 2 and counts.shape[0] == counts.shape[1]
                if not square or counts.dtype.kind != "i" or counts.min() < 0:
                    raise ValueError(f"'{name}' is no confusion matrix")
        except (
            OSError,
            ValueError,
            TypeError,
            IndexError,
            AttributeError,
            OverflowError,
            RecursionError,
        ) as error:
            raise UserError(f"{path} is not a record of a test during a step: {error}.") from error
        found.append(record)
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
    """Whether a path is a run folder: one with a recipe."""
    return (Path(path) / "recipe.yaml").is_file()


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
    if not is_run(folder):
        raise UserError(f"{folder} is not a run folder: it has no recipe.yaml.")
    recipe = read_yaml(folder / "recipe.yaml")
    if not isinstance(recipe.get("method"), dict) or "name" not in recipe["method"]:
        raise UserError(f"{folder}/recipe.yaml does not say which method was run.")
    paths = sorted(
        (folder / "steps").glob("*.json"), key=lambda path: int(path.stem) if path.stem.isdecimal() else -1
    )
    records = tuple(read_record(path) for path in paths)
    first = _learned_before(recipe)
    if [record.step for record in records] != list(range(first, first + len(records))):
        raise UserError(
            f"{folder}/steps should hold {first}.json, {first + 1}.json, ..."
            f" but holds {[path.name for path in paths]}."
        )
    return RunRecord(folder, recipe, records)


def _learned_before(recipe: Mapping[str, Any]) -> int:
    """The first step that a run trains: 0, unless it began with a model that had learned some steps."""
    scenario = recipe.get("scenario")
    learned = scenario.get("learned", 0) if isinstance(scenario, dict) else 0
    return learned if isinstance(learned, int) else 0


class _StrictLoader(yaml.SafeLoader):
    """YAML without code, in which a key may stand only once (PyYAML lets the last one win)."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        merge = "tag:yaml.org,2002:merge"
        keys = [self.construct_object(key, deep=True) for key, _ in node.value if key.tag != merge]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key '{key}' stands twice", node.start_mark
                )
        return super().construct_mapping(node, deep)


def read_yaml(path: str | Path) -> dict[str, Any]:
    """A YAML file whose top level is a mapping."""
    try:
        document = yaml.load(Path(path).read_text(encoding="utf-8"), Loader=_StrictLoader)
    except OSError as error:
        raise UserError(f"Cannot read {path}: {error.strerror}.") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f"{path} is not valid YAML: {' '.join(str(error).split())}.") from error
    if not isinstance(document, dict):
        raise UserError(
            f"{path} should hold 'section: {{key: value}}' entries, not {type(document).__name__}."
        )
    return document
