"""A disk that fails: faults at every place where a run writes, in a process of its own, then a resume.

Everything that a run writes goes through `segue.core.records` (`atomic_file`, `append_file`): there, at one
call of the system chosen by a seed, something goes wrong. Afterwards no file may be half-written, and a
resume must end as the run that nothing happened to.
"""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from campaign.inputs import SHORT
from campaign.tally import HANG_SECONDS, Tally
from segue.core import records
from segue.core.errors import UserError
from segue.core.progress import Display
from segue.core.records import read_record
from segue.engine.checkpoint import CheckpointStore, load_tree
from segue.engine.recipe import resolve
from segue.engine.run import run

KINDS = ("kill", "ENOSPC", "EIO", "short write", "EACCES", "vanish", "link")
FORGIVEN = ("vanish", "link")
"""faults by which others take files away: a sentence is enough, where a resume cannot mend it"""
CALLS = 60
"""calls of the system among which one is chosen; a run makes about so many"""
OUTSIDE = b"not yours"


class Fault:
    """Something that goes wrong at the n-th call."""

    def __init__(self, kind: str, call: int, folder: Path, chance: random.Random) -> None:
        self.kind, self.left, self.folder, self.chance = kind, call, folder, chance

    def __call__(self, file: Any = None, content: bytes = b"") -> None:
        self.left -= 1
        if self.left:
            return
        if self.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.kind == "short write" and file is not None:
            file.write(content[: len(content) // 2])
            file.flush()
        if self.kind in FORGIVEN:
            self._take_away()
            return
        number = {"EIO": errno.EIO, "EACCES": errno.EACCES}.get(self.kind, errno.ENOSPC)
        raise OSError(number, os.strerror(number))

    def _take_away(self) -> None:
        there = sorted(path for path in self.folder.rglob("*") if path.is_file())
        if there:
            path = self.chance.choice(there)
            path.unlink()
            if self.kind == "link":
                path.symlink_to(self.folder.parent / "outside")


class _Watched:
    """A module or a file whose calls may fail."""

    def __init__(self, real: Any, fault: Fault, watched: tuple[str, ...]) -> None:
        self._real, self._fault, self._watched = real, fault, watched

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._real, name)
        if name not in self._watched:
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            if name == "write":
                self._fault(self._real, args[0])
            else:
                self._fault()
            found = value(*args, **kwargs)
            return _Watched(found, self._fault, ("write", "flush")) if name == "fdopen" else found

        return call

    def __enter__(self) -> _Watched:
        self._real.__enter__()
        return self

    def __exit__(self, *error: Any) -> Any:
        return self._real.__exit__(*error)


def _arm(fault: Fault) -> None:
    """From now on the one place that writes is not to be trusted; for a process that ends soon."""
    records.os = _Watched(os, fault, ("fsync", "replace", "fdopen", "chmod"))
    records.tempfile = _Watched(tempfile, fault, ("mkstemp",))
    records.open = lambda *args: _Watched(open(*args), fault, ("write", "flush", "truncate"))  # noqa: SIM115


def in_child(work: Callable[[], None]) -> int:
    """The exit code of a forked process: 0, 2 for a sentence, 1 for a traceback, -9 killed, -1 for a hang."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except UserError as error:
            code = 2 if len(str(error)) < 2000 and "None" not in str(error) else 1
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
        finally:
            os._exit(code)
    deadline = time.monotonic() + HANG_SECONDS * 3
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -1


def outcome(folder: Path) -> dict[str, Any]:
    """What two equal runs have in common."""
    found: dict[str, Any] = {"log": (folder / "log.jsonl").read_text()}
    for path in sorted((folder / "steps").glob("*.json")):
        document = json.loads(path.read_text())
        found[path.name] = {key: document[key] for key in ("confusion", "losses", "classes", "recipe_hash")}
    return found


def half_written(folder: Path) -> list[str]:
    """Files that are there and cannot be read."""
    bad = []
    for path in (folder / "steps").glob("*.json"):
        try:
            read_record(path)
        except UserError:
            bad.append(str(path))
    for entry in CheckpointStore(folder).entries():
        try:
            load_tree(entry.path)
        except UserError:
            bad.append(str(entry.path))
    return bad


def attack(tally: Tally, tries: int, seed: int, place: Path) -> None:
    config = resolve("finetune", "scenes", "2-1", overrides=SHORT)
    reference, folder = place / "faultless" / "run", place / "faulty" / "run"
    quiet = Display(quiet=True)
    if in_child(lambda: run(config, reference, display=quiet)):
        tally.fail("traceback", "the run without a fault")
        return
    expected, chance = outcome(reference), random.Random(seed)
    outside = folder.parent / "outside"
    for _ in range(tries):
        shutil.rmtree(folder.parent, ignore_errors=True)
        folder.parent.mkdir(parents=True)
        outside.write_bytes(OUTSIDE)
        kind, call = chance.choice(KINDS), chance.randint(1, CALLS)
        fault = Fault(kind, call, folder, chance)

        def failing(fault: Fault = fault) -> None:
            _arm(fault)
            run(config, folder, display=quiet)

        tally.tries += 1
        about = f"{kind} at call {call}"
        code = in_child(failing)
        tally.refused += code == 2
        if code in (1, -1):
            tally.fail("traceback" if code == 1 else "hang", about)
        links = [path for path in folder.rglob("*") if path.is_symlink()] if folder.exists() else []
        if outside.read_bytes() != OUTSIDE:
            tally.fail("outside", about)
        if not links and folder.exists() and half_written(folder):
            tally.fail("half-written", f"{about}: {half_written(folder)}")
        code = in_child(lambda: run(config, folder, resume=True, display=quiet))
        if code in (1, -1):
            tally.fail("traceback" if code == 1 else "hang", f"resume after {about}")
        elif code == 2 and kind not in FORGIVEN:
            tally.fail("lost", f"resume refused after {about}")
        elif code == 0 and outcome(folder) != expected:
            tally.fail("lost", f"another result after {about}")
