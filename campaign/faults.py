"""A disk that fails: faults at every place where Segue writes, in a process of its own, then once more.

Everything that it writes goes through `segue.core.records` (`atomic_file`, `append_file`): there, at one
call of the system chosen by a seed, something goes wrong. Afterwards no file may be half-written, and doing
the work again must end as if nothing had happened.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from campaign.jobs import Job, jobs
from campaign.tally import LONG_SECONDS, LeftOut, Tally
from segue.core import records
from segue.core.errors import UserError

KINDS = ("kill", "ENOSPC", "EIO", "short write", "EACCES", "vanish", "link", "slow")
FORGIVEN = ("vanish", "link")
"""faults by which others take files away: a sentence is enough, where a resume cannot mend it"""
SLOW_SECONDS = 0.01
"""time that each call takes on a slow disk"""
OUTSIDE = b"not yours"
LEAST_KILOBYTES = 16
"""size of the smallest disk that fills up"""


class Fault:
    """Something that goes wrong at the n-th call."""

    def __init__(self, kind: str, call: int, folder: Path, chance: random.Random) -> None:
        self.kind, self.left, self.folder, self.chance = kind, call, folder, chance

    def __call__(self, file: Any = None, content: bytes = b"") -> None:
        self.left -= 1
        if self.kind == "slow" and self.left <= 0:
            time.sleep(SLOW_SECONDS)
        if self.left or self.kind == "slow":
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

    def count(self, file: Path) -> None:
        """Note how many calls there were; nothing went wrong."""
        file.write_text(str(-self.left))

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
    deadline = time.monotonic() + LONG_SECONDS
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -1


class Ground:
    """Two folders: one that nothing happens to, and one for each try."""

    def __init__(self, job: Job, place: Path) -> None:
        self.job, self.home = job, place / "faults" / job.name
        self.folder, self.outside = self.home / "faulty" / "work", self.home / "faulty" / "outside"
        self.expected: dict[str, Any] = {}
        self.calls = self.kilobytes = 0

    def measure(self) -> None:
        """Do the work without a fault: what comes of it, how many calls and how much room it takes."""
        reference, counted = self.home / "faultless", self.home / "calls"
        self.home.mkdir(parents=True)
        os.environ["SEGUE_CACHE"] = f"{self.home}/cache-faultless"

        def work() -> None:
            fault = Fault("none", 0, reference, random.Random(0))
            _arm(fault)
            self.job.work(reference, False)
            fault.count(counted)

        if code := in_child(work):
            raise RuntimeError(f"{self.job.name} without a fault: exit code {code}")
        self.expected, self.calls = self.job.outcome(reference), int(counted.read_text())
        self.kilobytes = sum(path.stat().st_size for path in reference.rglob("*")) // 1024

    def clear(self) -> None:
        """Make room for a try; before the first, find out what the work is without a fault."""
        if not self.calls:
            self.measure()
        shutil.rmtree(self.folder.parent, ignore_errors=True)
        self.folder.parent.mkdir(parents=True)
        self.outside.write_bytes(OUTSIDE)
        os.environ["SEGUE_CACHE"] = f"{self.folder.parent}/cache"

    def judge(
        self, tally: Tally, code: int, about: str, forgiven: bool = False, killed: bool = False
    ) -> None:
        """What a fault has left."""
        tally.tries += 1
        tally.refused += code == 2
        if code in (1, -1):
            tally.fail("traceback" if code == 1 else "hang", about)
        elif code < 0 and not (killed and code == -signal.SIGKILL):
            tally.fail("crash", f"{about}: exit code {code}")
        if self.outside.read_bytes() != OUTSIDE:
            tally.fail("outside", about)
        if not forgiven and (damaged := self.job.damaged(self.folder)):
            tally.fail("half-written", f"{about}: {damaged}")

    def again(self, tally: Tally, about: str, forgiven: bool = False) -> None:
        """Do the work once more: it must end as if nothing had happened."""
        code = in_child(lambda: self.job.work(self.folder, True))
        if code in (1, -1):
            tally.fail("traceback" if code == 1 else "hang", f"again after {about}")
        elif code == 2 and not forgiven:
            tally.fail("lost", f"again refused after {about}")
        elif code < 0:
            tally.fail("crash", f"again after {about}: exit code {code}")
        elif code == 0 and _lasting(self.job.outcome(self.folder), forgiven) != _lasting(
            self.expected, forgiven
        ):
            tally.fail("lost", f"another result after {about}")


def _lasting(outcome: dict[str, Any], taken_away: bool) -> dict[str, Any]:
    """What must be the same again: lines of a log that somebody took away are not written anew."""
    return {key: value for key, value in outcome.items() if not (taken_away and key == "log")}


def _grounds(place: Path) -> list[Ground]:
    """One for each job."""
    shutil.rmtree(place / "faults", ignore_errors=True)
    return [Ground(job, place) for job in jobs(place)]


def attack(tally: Tally, tries: int, seed: int, place: Path) -> None:
    """One call of one job fails, chosen by the seed."""
    chance, grounds = random.Random(seed), _grounds(place)
    for number in range(tries):
        ground = grounds[number % len(grounds)]
        ground.clear()
        kind, call = chance.choice(KINDS), chance.randint(1, ground.calls)
        about = f"{ground.job.name}: {kind} at call {call} of {ground.calls}"
        fault = Fault(kind, call, ground.folder, chance)

        def failing(fault: Fault = fault, ground: Ground = ground) -> None:
            _arm(fault)
            ground.job.work(ground.folder, False)

        code = in_child(failing)
        if kind == "slow" and code:
            tally.fail("slow", f"{about}: exit code {code}")
        ground.judge(tally, code, about, kind in FORGIVEN, killed=kind == "kill")
        ground.again(tally, about, kind in FORGIVEN)


def full_disk(tally: Tally, tries: int, seed: int, place: Path) -> None:
    """A file system that is too small, and then is enlarged; left out where none can be mounted."""
    chance, grounds = random.Random(seed), _grounds(place)
    for number in range(tries):
        ground = grounds[number % len(grounds)]
        ground.clear()
        size = chance.randint(LEAST_KILOBYTES, max(ground.kilobytes, LEAST_KILOBYTES + 1))
        ground.folder.mkdir()
        with _small_disk(ground.folder, size) as enlarge:
            about = f"{ground.job.name}: a disk of {size} kB for {ground.kilobytes} kB"
            code = in_child(lambda ground=ground: ground.job.work(ground.folder, False))  # type: ignore[misc]
            ground.judge(tally, code, about)
            enlarge()
            ground.again(tally, about)


@contextmanager
def _small_disk(folder: Path, kilobytes: int) -> Iterator[Callable[[], None]]:
    """A tmpfs of so many kilobytes at a folder; what is yielded enlarges it."""

    def mount(*options: str) -> None:
        command = ["mount", *options, str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise LeftOut(f"no tmpfs can be mounted here ({done.stderr.strip()})")

    mount("-t", "tmpfs", "-o", f"size={kilobytes}k", "none")
    try:
        yield lambda: mount("-o", "remount,size=64m")
    finally:
        subprocess.run(["umount", str(folder)], check=True)
