"""Which files of a folder a run has written: these alone are deleted, and a link is never one of them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from segue.core.config import RunConfig, validate
from segue.core.errors import UserError, os_sentence
from segue.core.records import read_yaml

LAUNCH_FILE = "launch.txt"
"""file that names the last torchrun here; kept, since a process may die after the last record is written"""
OWN_FILE = re.compile(
    rf"recipe\.yaml|scenario\.json|log\.jsonl|times\.jsonl|verdict\.(json|html)|{re.escape(LAUNCH_FILE)}"
    r"|checkpoints/step\d+(-\d+)?\.safetensors|(steps|memory)/\d+\.json|counts/\d+\.npz|trajectory/\d+-\d+\.json"
    r"|samples/(index\.json|\d+/(input|truth|step\d+(-[^/]+)?)\.png)"
    r"|tensorboard/events\.out\.tfevents\.[^/]+|mlflow\.db"
)
OWN_FOLDER = re.compile(r"checkpoints|steps|memory|counts|trajectory|samples(/\d+)?|tensorboard")
HALF_WRITTEN = re.compile(r"((?:[^/]+/)*)\.([^/]+)\.[^./]+\.part")
"""names of files that a killed process leaves, with the folder and name of the file they stand for"""
SHOWN = 5


def check_own(folder: Path) -> None:
    """Refuse a folder that is to be cleared but is no run's, or holds what no run has written."""
    try:
        validate(RunConfig, read_yaml(folder / "recipe.yaml"), "")
    except UserError as error:
        raise UserError(
            f"{folder} is not a run folder: its recipe.yaml is another kind of recipe. Nothing was deleted."
            f"\n  {error}"
        ) from error
    check_links(folder)
    foreign = [name for name, path in _content(folder) if not _is_own(name, path)]
    if foreign:
        more = f" and {len(foreign) - SHOWN} more" if len(foreign) > SHOWN else ""
        raise UserError(
            f"{folder} holds what no run has written: {', '.join(foreign[:SHOWN])}{more}."
            " Nothing was deleted: move it elsewhere, or name another folder with --out."
        )


def check_links(folder: Path) -> None:
    """Refuse a run folder with links in it before anything is written; the folder itself may be one."""
    for _, path in _content(folder):
        if path.is_symlink():
            raise UserError(
                f"{path} is a link, and a run writes into its own folder only: replace it by what it stands"
                " for, or name another folder with --out."
            )


def clear_folder(folder: Path, everything: bool) -> None:
    """Remove what a killed process left half-written, or a whole run: its own files only, its recipe last."""
    check_links(folder)
    own = [(name, path) for name, path in _content(folder) if _is_own(name, path)]
    try:
        for name, path in own:
            if path.is_file() and (HALF_WRITTEN.fullmatch(name) or (everything and name != "recipe.yaml")):
                path.unlink()
        if everything:
            for _, path in reversed(own):  # folders stand before what is in them
                if path.is_dir():
                    path.rmdir()
            (folder / "recipe.yaml").unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"Cannot clear {folder}: {os_sentence(error)}") from error


def _is_own(name: str, path: Path) -> bool:
    if path.is_dir():
        return OWN_FOLDER.fullmatch(name) is not None
    if half := HALF_WRITTEN.fullmatch(name):
        name = half[1] + half[2]
    return path.is_file() and OWN_FILE.fullmatch(name) is not None


def _content(folder: Path) -> Iterator[tuple[str, Path]]:
    """Everything in a folder by its name there, folders before what is in them; links are not entered."""

    def stop(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):  # a new run has no folder yet
            raise UserError(f"Cannot read {os_sentence(error)}") from error

    for place, folders, files in os.walk(folder, onerror=stop):
        folders.sort()
        for name in (*folders, *sorted(files)):
            path = Path(place, name)
            yield path.relative_to(folder).as_posix(), path
