"""Several runs side by side, one process and a share of the cores each.

Small networks use one core better than many: two runs side by side end sooner than one after the other.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from segue.core import plugins
from segue.core.config import RunConfig, as_dict
from segue.core.errors import UserError
from segue.core.launch import safe_path
from segue.core.progress import REFRESH_SECONDS, Bar, Display, heartbeat, terminal_bars
from segue.core.records import RunRecord, read_run
from segue.engine.interrupt import STOPPING, Interrupted
from segue.engine.recipe import complete
from segue.engine.run import run
from segue.engine.runtime import pick_device
from segue.engine.start import can_be_taken, has_first_step


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


def _job(recipe: dict[str, Any], *rest: Any) -> Job:
    return Job(complete(recipe), *rest)


def run_all(
    jobs: Sequence[Job], device: str = "auto", display: Display | None = None, keep_going: bool = False
) -> list[RunRecord]:
    """Carry out all jobs, as many at once as there are cores (one at a time on an accelerator).

    A job that fails ends the whole; with `keep_going` only after the others are done.
    """
    display = display or Display()
    cores = available_cores()
    processes = min(cores, len(jobs)) if pick_device(device).type == "cpu" else 1
    if processes == 1:
        errors = []
        for job in jobs:
            try:
                run(job.config, job.folder, job.resume, job.overwrite, device, display, _start(job))
            except UserError as error:
                errors.append(f"{job.folder.name}: {error}")
                if not keep_going:
                    raise
        if errors:
            raise UserError("\n".join(errors))
    else:
        threads = max(1, cores // processes)
        _Pool(jobs, device, display, processes, threads, keep_going).work()
    return [read_run(job.folder) for job in jobs]


def available_cores() -> int:
    """Cores that this process may use, not those that the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Pool:
    """Starts a process per job, never more than `processes` at once, and shows what they report."""

    def __init__(
        self,
        jobs: Sequence[Job],
        device: str,
        display: Display,
        processes: int,
        threads: int,
        keep_going: bool,
    ) -> None:
        # "spawn": a forked copy of a process that has used torch's threads may hang
        self.context = multiprocessing.get_context("spawn")
        with safe_path():  # a queue starts a process, too
            self.reports: Any = self.context.Queue()
        self.waiting, self.running = list(jobs), {}
        self.arguments = (self.reports, device, threads, display.shows_bars)
        self.display, self.processes = display, processes
        self.errors: list[str] = []
        self.keep_going = keep_going
        self.tasks: dict[str, Any] = {}
        self.began: dict[str, float] = {}

    def work(self) -> None:
        with terminal_bars(self.display.console, transient=True) as bars:
            bars.disable = not self.display.shows_bars
            try:
                while (self.waiting and self._goes_on) or self.running:
                    self._start(bars)
                    self._listen(bars)
            except KeyboardInterrupt:
                self.display.answer(STOPPING)
                self._stop()
                raise Interrupted from None
            except BaseException:
                self._stop()
                raise
        if self.errors:
            raise UserError("\n".join(self.errors))

    @property
    def _goes_on(self) -> bool:
        return self.keep_going or not self.errors

    def _start(self, bars: Any) -> None:
        while self.waiting and len(self.running) < self.processes and self._goes_on:
            ready = (i for i, job in enumerate(self.waiting) if not self._must_wait(job))
            if (place := next(ready, None)) is None:
                return
            job = self.waiting.pop(place)
            process = self.context.Process(target=_work, args=(job, *self.arguments))
            # both are inherited; Ctrl-C reaches the parent, which asks with SIGTERM
            with safe_path(), _ignored(signal.SIGINT):
                process.start()
            name = str(job.folder)
            self.running[name], self.began[name] = process, time.monotonic()
            self.tasks[name] = bars.add_task(job.folder.name, total=None, text="starting")

    def _must_wait(self, job: Job) -> bool:
        """Whether step 0, which it will take from another job, is still to be trained."""
        return (
            job.start is not None
            and not has_first_step(job.start)
            and job.start != job.folder
            and (str(job.start) in self.running or any(other.folder == job.start for other in self.waiting))
        )

    def _listen(self, bars: Any) -> None:
        # looked at first: what an ended process has said is there by then, so silence after it is final
        ended = {name: code for name, each in self.running.items() if (code := each.exitcode) is not None}
        try:
            name, kind, content = self.reports.get(timeout=0.2)
        except queue.Empty:
            for name, code in ended.items():
                self._end(name, bars, f"{name}: the process ended with exit code {code}.")
            return
        if kind == "bar":
            title, total, done, text = content
            bars.update(self.tasks[name], description=title, total=total, completed=done, text=text)
        elif kind == "say":
            self.display.say(content)
        elif kind == "remark":
            self.display.remark(content)
        elif name in self.running:
            self._end(name, bars, content)

    def _end(self, name: str, bars: Any, error: str | None) -> None:
        self.running.pop(name).join()
        bars.update(self.tasks[name], visible=False)
        if error is None:
            self.display.say(f"{Path(name).name:<9} done in {time.monotonic() - self.began[name]:.0f} s")
        else:
            self.errors.append(error)

    def _stop(self) -> None:
        """Ask every process to save and end; a second Ctrl-C does not wait."""
        for process in self.running.values():
            if process.is_alive():
                os.kill(process.pid, signal.SIGTERM)
        try:
            for process in self.running.values():
                process.join()
        except KeyboardInterrupt:
            for process in self.running.values():
                process.kill()
            raise


@contextmanager
def _ignored(number: int) -> Iterator[None]:
    handler = signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(number, handler)


def _start(job: Job) -> Path | None:
    """The run to start from; none if it has failed before it had a step 0, or has a damaged one."""
    return job.start if job.start is not None and can_be_taken(job.start) else None


class _QueueDisplay(Display):
    """Sends bars and messages to the process that shows them."""

    def __init__(self, name: str, reports: Any, shows_bars: bool) -> None:
        super().__init__(quiet=True)
        self._name, self._reports, self._shows_bars = name, reports, shows_bars

    @property
    def shows_bars(self) -> bool:
        return self._shows_bars

    def say(self, message: str) -> None:
        self._reports.put((self._name, "say", message))

    def answer(self, message: str) -> None:
        """Nothing: the process that shows messages answers for all."""

    def remark(self, message: str) -> None:
        self._reports.put((self._name, "remark", message))

    @contextmanager
    def bar(self, title: str, total: int, done: int = 0) -> Iterator[Bar]:
        if not self.shows_bars:
            yield heartbeat(self.say, title, total, done)
            return
        report = self._reports.put
        yield Bar(lambda done, text: report((self._name, "bar", (title, total, done, text))), REFRESH_SECONDS)


def _follow_parent(reports: Any) -> None:
    """Save and stop when the parent is gone; nobody reads the reports then, so the process must not wait."""
    multiprocessing.parent_process().join()
    reports.cancel_join_thread()
    os.kill(os.getpid(), signal.SIGTERM)


def _work(job: Job, reports: Any, device: str, threads: int, shows_bars: bool) -> None:
    """A job in its own process."""
    threading.Thread(target=_follow_parent, args=(reports,), daemon=True).start()
    torch.set_num_threads(threads)
    name = str(job.folder)
    try:
        report = _QueueDisplay(name, reports, shows_bars)
        run(job.config, job.folder, job.resume, job.overwrite, device, report, _start(job))
        reports.put((name, "end", None))
    except UserError as error:
        reports.put((name, "end", f"{job.folder.name}: {error}"))
    except Interrupted:
        reports.put((name, "end", f"{job.folder.name}: stopped from outside; all is saved."))
    except Exception as error:
        if (own := plugins.own_error(error)) is None:
            raise
        reports.put((name, "end", f"{job.folder.name}: {own}"))
