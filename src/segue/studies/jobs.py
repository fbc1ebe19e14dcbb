"""The jobs of a study: which may start, what they report and how they end.

Executors carry them out: studies/pool.py on this machine, studies/cluster.py on a Ray cluster.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from segue.core.config import RunConfig, as_dict
from segue.core.errors import UserError
from segue.core.progress import REFRESH_SECONDS, Bar, Display, heartbeat, terminal_bars
from segue.engine.interrupt import STOPPING, Interrupted
from segue.engine.recipe import complete
from segue.engine.start import can_be_taken, has_first_step

Report = tuple[str, str, Any]
"""folder of a job, kind (begin, bar, say, remark, end) and content"""


@dataclass(frozen=True)
class Job:
    """A run to be done."""

    config: RunConfig
    folder: Path
    resume: bool = False
    overwrite: bool = False
    start: Path | None = None
    """a run to take step 0 from; if it is one of these jobs, this one waits until it has that step"""

    def __reduce__(self) -> tuple[Any, ...]:
        """The recipe in plain values: another process may not know the classes of a method file."""
        return _job, (as_dict(self.config), self.folder, self.resume, self.overwrite, self.start)

    @property
    def sound_start(self) -> Path | None:
        """The run to start from; none if it has failed before it had a step 0, or has a damaged one."""
        return self.start if self.start is not None and can_be_taken(self.start) else None


def _job(recipe: dict[str, Any], *rest: Any) -> Job:
    return Job(complete(recipe), *rest)


@dataclass(frozen=True)
class Workers:
    """Where the runs of a study are carried out."""

    gpus_per_run: int = 1
    cluster: str | None = None
    """address of a Ray cluster, `auto` for the one that this machine belongs to; None: this machine"""


class Executor(Protocol):
    """Carries out jobs somewhere."""

    @property
    def has_room(self) -> bool:
        """Whether another job can be handed over."""

    def start(self, job: Job) -> None: ...

    def reports(self) -> Iterable[Report]:
        """What there is to tell, after a short wait; the end of a job is told once, with its error."""

    def stop(self) -> None:
        """Ask every job to save and end, and wait for it; a second Ctrl-C does not wait."""


def work_off(jobs: Sequence[Job], executor: Executor, display: Display, keep_going: bool) -> None:
    """Hand over every job as soon as it may start, and show what all report, until all have ended.

    A job that fails ends the whole; with `keep_going` only after the others are done.
    """
    with terminal_bars(display.console, transient=True) as bars:
        bars.disable = not display.shows_bars
        work = _Work(jobs, executor, display, keep_going, bars)
        try:
            while (work.waiting and work.goes_on) or work.running:
                work.start()
                for report in executor.reports():
                    work.hear(*report)
        except KeyboardInterrupt:
            display.answer(STOPPING)
            executor.stop()
            raise Interrupted from None
        except BaseException:
            executor.stop()
            raise
    if work.errors:
        raise UserError("\n".join(work.errors))


class _Work:
    """What is waiting, what is running and what went wrong."""

    def __init__(
        self, jobs: Sequence[Job], executor: Executor, display: Display, keep_going: bool, bars: Any
    ) -> None:
        self.waiting, self.running = list(jobs), set[str]()
        self.executor, self.display, self.bars = executor, display, bars
        self.errors: list[str] = []
        self.keep_going = keep_going
        self.tasks: dict[str, Any] = {}
        self.began: dict[str, float] = {}

    @property
    def goes_on(self) -> bool:
        return self.keep_going or not self.errors

    def start(self) -> None:
        while self.waiting and self.executor.has_room and self.goes_on:
            ready = (i for i, job in enumerate(self.waiting) if not self._must_wait(job))
            if (place := next(ready, None)) is None:
                return
            job = self.waiting.pop(place)
            self.executor.start(job)
            self.running.add(str(job.folder))

    def _must_wait(self, job: Job) -> bool:
        """Whether step 0, which it will take from another job, is still to be trained."""
        return (
            job.start is not None
            and not has_first_step(job.start)
            and job.start != job.folder
            and (str(job.start) in self.running or any(other.folder == job.start for other in self.waiting))
        )

    def hear(self, name: str, kind: str, content: Any) -> None:
        if kind == "say":
            self.display.say(content)
        elif kind == "remark":
            self.display.remark(content)
        elif kind == "begin":
            self._begin(name, content)
        elif kind == "bar" and name in self.tasks:
            title, total, done, text = content
            self.bars.update(self.tasks[name], description=title, total=total, completed=done, text=text)
        elif kind == "end":
            self._end(name, content)

    def _begin(self, name: str, place: str) -> None:
        if name in self.tasks:
            self.display.say(f"{Path(name).name} is started again {place}, from its last checkpoint.")
            return
        self.began[name] = time.monotonic()
        self.tasks[name] = self.bars.add_task(Path(name).name, total=None, text=f"starting {place}".strip())

    def _end(self, name: str, error: str | None) -> None:
        self.running.discard(name)
        if name in self.tasks:
            self.bars.update(self.tasks[name], visible=False)
        if error is None:
            took = time.monotonic() - self.began.get(name, time.monotonic())
            self.display.say(f"{Path(name).name:<9} done in {took:.0f} s")
        else:
            self.errors.append(error)


class ReportingDisplay(Display):
    """Sends bars and messages to the process that shows them."""

    def __init__(self, name: str, send: Any, shows_bars: bool, seconds: float = REFRESH_SECONDS) -> None:
        super().__init__(quiet=True)
        self._name, self._send, self._shows_bars, self._seconds = name, send, shows_bars, seconds

    @property
    def shows_bars(self) -> bool:
        return self._shows_bars

    def say(self, message: str) -> None:
        self._send((self._name, "say", message))

    def answer(self, message: str) -> None:
        """Nothing: the process that shows messages answers for all."""

    def remark(self, message: str) -> None:
        self._send((self._name, "remark", message))

    @contextmanager
    def bar(self, title: str, total: int, done: int = 0) -> Iterator[Bar]:
        if not self.shows_bars:
            yield heartbeat(self.say, title, total, done)
            return
        yield Bar(
            lambda done, text: self._send((self._name, "bar", (title, total, done, text))), self._seconds
        )
