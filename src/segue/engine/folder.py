"""The rules of a run folder: when it may be used, and whether its images are still the same."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from segue.core.config import RunConfig, decisive, read_back, to_yaml
from segue.core.errors import UserError, reason
from segue.core.launch import launcher, this_launch
from segue.core.manifest import read_manifest
from segue.core.neutral import MAY_CHANGE, drop
from segue.core.ordinary import user_path
from segue.core.overrides import differences
from segue.core.records import is_run, read_yaml, write_json, write_text
from segue.engine.own_files import LAUNCH_FILE, check_own
from segue.engine.recipe import complete

EARLY_FILES = re.compile(r"scenario\.json|launch\.txt|\.(scenario\.json|launch\.txt|recipe\.yaml)\..*\.part")
"""names of files that a run leaves if it is stopped before it has its recipe"""

LONGEST_NAME = 200
"""bytes of a folder's name; file systems take 255, and some words may come behind it"""


def default_folder(config: RunConfig) -> Path:
    """runs/METHOD-DATASET-SPLIT-MODE-SEED"""
    scenario = config.scenario
    split = scenario.split if isinstance(scenario.split, str) else "custom"
    names = Path(config.method.name).stem, Path(scenario.dataset).stem
    words = [*names, split, scenario.mode, f"s{config.train.seed}"]
    return Path("runs") / plain_name(words)


def plain_name(words: Iterable[str]) -> str:
    """Words as one file name; of what no file system takes the beginning, and a digest of the whole."""
    name = "-".join(
        "".join(c if c.isalnum() or c in "-_+" else "-" if c == " " else "+" for c in word) for word in words
    )
    if len(os.fsencode(name)) <= LONGEST_NAME:
        return name
    digest = hashlib.sha256(os.fsencode(name)).hexdigest()[:12]
    beginning = os.fsencode(name)[: LONGEST_NAME - len(digest) - 1].decode("utf-8", "ignore")
    return f"{beginning}+{digest}"


def check_folder(folder: Path, config: RunConfig, resume: bool, overwrite: bool) -> None:
    """A folder is new, or is to be overwritten, or holds a run of the very same recipe."""
    if resume and overwrite:
        raise UserError("--resume goes on, --overwrite starts anew: choose one of them.")
    _refuse_file(folder)
    began = is_run(folder)
    content = list(folder.iterdir()) if folder.exists() else []
    if (resume or overwrite) and not began and not all(EARLY_FILES.fullmatch(path.name) for path in content):
        raise UserError(f"{folder} is not a run folder: it has no recipe.yaml, but other files.")
    if overwrite and began:
        check_own(folder)
    elif resume and began:
        check_recipe(folder, read_yaml(folder / "recipe.yaml"), config)
    elif content and not (resume or overwrite):
        raise UserError(
            f"The run folder {folder} exists. Go on with --resume, start anew with --overwrite,"
            " or name another with --out."
        )


def check_recipe(folder: Path, recipe: Mapping[str, Any], config: RunConfig) -> None:
    """A run may go on, or count as done, with the very recipe that it was started with."""
    stored = complete(recipe)  # it may be older than some settings
    lines = differences(read_back(stored), read_back(config))
    if lines := [line for line in lines if line.split(":")[0] not in MAY_CHANGE]:
        raise UserError(
            f"{folder} was started with another recipe (stored -> asked for):\n  "
            + "\n  ".join(lines)
            + "\nResume with the stored recipe (segue train FOLDER --resume), or start anew: --overwrite."
        )


def after_restart(folder: Path, resume: bool, overwrite: bool) -> tuple[bool, bool]:
    """`resume` and `overwrite` as they are meant when torchrun has started a command again.

    It goes on where it was, but in a folder that it has opened itself only: another run's is still refused.
    How often it was started is no sign: on several nodes each torchrun counts for itself.
    """
    note = folder / LAUNCH_FILE
    restarted = this_launch().by_torchrun and note.is_file() and note.read_bytes() == launcher().encode()
    return (True, False) if restarted else (resume, overwrite)


def note_launch(folder: Path) -> None:
    if this_launch().by_torchrun:
        write_text(folder / LAUNCH_FILE, launcher(), folder)


def identity(config: RunConfig) -> str:
    """A hash of what decides a run's numbers: its recipe and, if it is not ours, its method file."""
    plain = decisive(config)
    drop(plain, MAY_CHANGE)
    digest = hashlib.sha256(json.dumps(plain, sort_keys=True).encode())
    if config.method.name.endswith(".py"):
        digest.update(user_path(config.method.name).read_bytes())
    return digest.hexdigest()


@contextmanager
def locked(folder: Path, patience: float = 15.0) -> Iterator[None]:
    """One process at a time works in a run folder (where the system has file locks).

    The workers of a killed process hold its lock for some seconds, so a resume waits a little.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    deadline = time.monotonic() + patience
    while (handle := _lock(folder, fcntl)) is None:
        if time.monotonic() > deadline:
            raise UserError(f"Another process is working in {folder}: wait for it, or stop it.")
        time.sleep(0.2)
    try:
        yield
    finally:
        for place in missing:  # of a run that was refused nothing is left: only empty folders can be removed
            with suppress(OSError):
                place.rmdir()
        os.close(handle)


def _refuse_file(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise UserError(f"The run folder {folder} is a file. Name another with --out.")


def _lock(folder: Path, fcntl: ModuleType) -> int | None:
    """A folder, made if need be, open and locked; None while another process has it, or has removed it."""
    _refuse_file(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise UserError(f"Cannot write {folder}: {reason(error)}.") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if folder.is_dir() and os.path.samestat(os.fstat(handle), folder.stat()):
            return handle
    except BlockingIOError:
        pass
    os.close(handle)
    return None


def open_folder(folder: Path, config: RunConfig, manifest: dict[str, Any]) -> None:
    """Write recipe and manifest, or check that a run to be resumed still has the same images."""
    if is_run(folder) and (folder / "scenario.json").is_file():
        check_images(folder, manifest)
        return
    write_json(folder / "scenario.json", manifest, folder)
    write_text(folder / "recipe.yaml", to_yaml(config), folder)


def check_images(folder: Path, manifest: dict[str, Any]) -> None:
    """Refuse a run that has trained on other images than these."""
    stored = read_manifest(folder / "scenario.json")
    if stored.get("hash") != manifest["hash"]:
        raise UserError(f"{folder} was started on other images: {_difference(stored, manifest)}. Start anew.")


def _difference(stored: dict[str, Any], found: dict[str, Any]) -> str:
    for old, new in zip(stored.get("steps", []), found["steps"], strict=False):
        if old != new:
            count = len(set(old["train"]) ^ set(new["train"]))
            return f"step {new['step']} had {old['images']} and now has {new['images']} ({count} differ)"
    return "its scenario.json differs"
