"""A study packed into one file: the records of many runs, a line each, instead of thousands of files.

`study.jsonl` in a folder stands for run folders below it. Whoever reads `FOLDER/NAME` as a run, and finds no
such folder, finds the line of that name. A line holds the recipe, the records of all steps and, if there are
any, the counts of single test images. Checkpoints and pictures are not in it.
"""

from __future__ import annotations

import base64
import binascii
import functools
import json
from pathlib import Path
from typing import Any

from segue.core.errors import UserError, reason
from segue.core.ordinary import read_ordinary

STUDY_FILE = "study.jsonl"
STUDY_FORMAT = "segue-study-1"
KINDS = {"recipe": dict, "steps": list, "counts": dict}
DEPTH = 3
"""folders above a run in which its study may lie"""


def packed_run(folder: Path) -> dict[str, Any] | None:
    """The line that stands for a run folder; None if no study above it has one."""
    for above in list(folder.parents)[:DEPTH]:
        study = above / STUDY_FILE
        if study.is_file():
            name = folder.relative_to(above).as_posix()
            if (found := read_study(study).get(name)) is not None:
                return found
    return None


def packed_places(study: Path) -> list[Path]:
    """The folders that a study stands for."""
    return [study.parent / name for name in read_study(study)]


def read_study(path: Path) -> dict[str, dict[str, Any]]:
    """Its lines by the names of their runs; read once, as long as the file stays the same."""
    try:
        state = path.stat()
        return _read(path, state.st_mtime_ns, state.st_size)
    except OSError as error:
        raise UserError(f"Cannot read the study {path}: {reason(error)}.") from error


@functools.lru_cache(maxsize=16)
def _read(path: Path, changed: int, size: int) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(read_ordinary(path).splitlines(), 1):
        try:
            document = json.loads(line)
            if document.get("format") != STUDY_FORMAT:
                raise ValueError(f"its format is not {STUDY_FORMAT}")
            name = str(document["run"])
            if name in found or Path(name).is_absolute() or ".." in Path(name).parts:
                raise ValueError(f"the run '{name}' stands twice, or not below the study")
            asked = {"counts": {}, **document}
            if wrong := [key for key, kind in KINDS.items() if not isinstance(asked.get(key), kind)]:
                raise ValueError(f"'{wrong[0]}' is missing, or is no {KINDS[wrong[0]].__name__}")
            found[name] = document
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UserError(f"{path}, line {number} is no run of a study: {error}.") from error
    return found


def packed_counts(folder: Path, step: int) -> bytes | None:
    """The file of counts of single test images of a packed run."""
    text = (packed_run(folder) or {}).get("counts", {}).get(str(step))
    try:
        return None if text is None else base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError, TypeError) as error:
        raise UserError(f"{folder}, step {step}: counts of test images cannot be read: {error}.") from error


def study_line(name: str, recipe: dict[str, Any], steps: list[Any], images: dict[int, bytes]) -> str:
    """A run as a line."""
    document = {"format": STUDY_FORMAT, "run": name, "recipe": recipe, "steps": steps}
    if images:
        texts = {str(step): base64.b64encode(content).decode("ascii") for step, content in images.items()}
        document["counts"] = texts
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))
