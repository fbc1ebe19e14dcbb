"""The list of files that training leaves out: written by `segue data check --skip-bad`, read by data sets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from segue.core.errors import UserError, reason
from segue.core.ordinary import read_ordinary, user_path
from segue.core.records import write_json

SKIP_FORMAT = "segue-skip-1"


def write_skip_list(
    path: Path, dataset: str, bad: Mapping[str, Mapping[str, str]], before: str | None = None
) -> None:
    """`bad[split][key]` says why an image cannot be used; those of the list `before` stay left out."""
    if path.exists():
        _read_document(path)  # nothing but another such list is written over
    earlier = {split: _read(before, dataset, split) if before else {} for split in bad}
    skip = {split: {**earlier[split], **reasons} for split, reasons in bad.items()}
    write_json(path, {"format": SKIP_FORMAT, "dataset": dataset, "skip": skip})


def skipped_keys(path: str | Path, dataset: str, split: str) -> frozenset[str]:
    """Keys of the images of a split that are left out."""
    return frozenset(_read(path, dataset, split))


def _read(path: str | Path, dataset: str, split: str) -> dict[str, str]:
    """key -> why it is left out."""
    path = user_path(path)
    document = _read_document(path)
    if document.get("dataset") != dataset:
        raise UserError(f"{path} is for the data set '{document.get('dataset')}', not for '{dataset}'.")
    reasons = document.get("skip")
    keys = reasons.get(split, {}) if isinstance(reasons, dict) else None
    if not isinstance(keys, dict):
        raise UserError(f"{path} is damaged: 'skip' should name images and reasons for '{split}'.")
    return keys


def _read_document(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(read_ordinary(path))
    except OSError as error:
        raise UserError(f"The list of files to leave out {path} cannot be read: {reason(error)}.") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is no list of files to leave out: it is not JSON ({error}).") from error
    if not isinstance(document, dict) or document.get("format") != SKIP_FORMAT:
        raise UserError(f"{path} is no list of files to leave out. Write one: segue data check --skip-bad.")
    return document
