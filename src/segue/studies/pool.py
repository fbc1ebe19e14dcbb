"""Several runs side by side on one machine: a process each, with its share of the cores or its own GPUs.

Small networks use one core better than many: two runs side by side end sooner than one after the other.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from segue.core.errors import UserError
from segue.core.launch import safe_path
from segue.core.progress import Display
from segue.core.records import RunRecord, read_run
from segue.engine.device import pick_device
from segue.engine.run import run
from segue.studies.carry_out import carry_out
from segue.studies.jobs import Job, Report, ReportingDisplay, Workers, work_off

VISIBLE = "CUDA_VISIBLE_DEVICES"


def run_all(
    jobs: Sequence[Job],
    device: str = "auto",
    display: Display | None = None,
    keep_going: bool = False,
    workers: Workers | None = None,
) -> list[RunRecord]:
    """Carry out all jobs on this machine, as many at once as there are cores or GPUs, or on a cluster.

    A job that fails ends the whole; with `keep_going` only after the others are done.
    """
    display, workers = display or Display(), workers or Workers()
    if workers.cluster is not None:
        from segue.studies.cluster import run_on_cluster  # Ray is an extra

        run_on_cluster(jobs, device, display, keep_going, workers)
        return [read_run(job.folder) for job in jobs]
    slots, cores, gpus = _gpu_slots(device, workers.gpus_per_run), available_cores(), workers.gpus_per_run
    if not slots:
        processes = min(cores, len(jobs)) if pick_device(device).type == "cpu" else 1
        slots = [{}] * processes
    if len(slots) == 1 and gpus == 1:
        _one_by_one(jobs, device, display, keep_going)
    else:
        threads = max(1, cores // min(len(slots), len(jobs)))
        work_off(jobs, Pool(slots, device, threads, gpus, display.shows_bars), display, keep_going)
    return [read_run(job.folder) for job in jobs]


def _one_by_one(jobs: Sequence[Job], device: str, display: Display, keep_going: bool) -> None:
    errors = []
    for job in jobs:
        try:
            run(job.config, job.folder, job.resume, job.overwrite, device, display, job.sound_start)
        except UserError as error:
            errors.append(f"{job.folder.name}: {error}")
            if not keep_going:
                raise
    if errors:
        raise UserError("\n".join(errors))


def available_cores() -> int:
    """Cores that this process may use, not those that the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def available_gpus(device: str) -> list[str]:
    """The GPUs that runs may use, as CUDA_VISIBLE_DEVICES names them; none if one was chosen, or the CPU."""
    chosen = pick_device(device)
    if chosen.type != "cuda" or chosen.index is not None:
        return []
    count, visible = torch.cuda.device_count(), os.environ.get(VISIBLE, "")
    return visible.split(",")[:count] if visible else [str(index) for index in range(count)]


def _gpu_slots(device: str, gpus_per_run: int) -> list[dict[str, str]]:
    """The environment of each place for a run: which GPUs it sees."""
    gpus = available_gpus(device)
    if gpus_per_run > max(1, len(gpus)):
        raise UserError(
            f"--gpus-per-run {gpus_per_run}: {len(gpus)} GPUs can be used here with --device {device}."
        )
    starts = range(0, len(gpus) - gpus_per_run + 1, gpus_per_run)
    return [{VISIBLE: ",".join(gpus[start : start + gpus_per_run])} for start in starts]


class Pool:
    """Starts a process per job, never more at once than there are slots."""

    def __init__(
        self, slots: Sequence[Mapping[str, str]], device: str, threads: int, gpus: int, shows_bars: bool
    ) -> None:
        # "spawn": a forked copy of a process that has used torch's threads may hang
        self.context = multiprocessing.get_context("spawn")
        with safe_path():  # a queue starts a process, too
            self.queue: Any = self.context.Queue()
        self.free, self.taken = list(slots), dict[str, Mapping[str, str]]()
        self.running: dict[str, Any] = {}
        self.begun: list[str] = []
        self.arguments = (self.queue, device, threads, gpus, shows_bars)

    @property
    def has_room(self) -> bool:
        return bool(self.free)

    def start(self, job: Job) -> None:
        name, slot = str(job.folder), self.free.pop(0)
        process = self.context.Process(target=_work, args=(job, slot, *self.arguments))
        # all are inherited; Ctrl-C reaches the parent, which asks with SIGTERM
        with safe_path(), _ignored(signal.SIGINT), _environment(slot):
            process.start()
        self.running[name], self.taken[name] = process, slot
        self.begun.append(name)

    def reports(self) -> Iterator[Report]:
        while self.begun:
            yield self.begun.pop(0), "begin", ""
        # looked at first: what an ended process has said is there by then, so silence after it is final
        ended = {name: code for name, each in self.running.items() if (code := each.exitcode) is not None}
        try:
            name, kind, content = self.queue.get(timeout=0.2)
        except queue.Empty:
            for name, code in ended.items():
                self._free(name)
                yield name, "end", f"{name}: the process ended with exit code {code}."
            return
        if kind == "end":
            if name not in self.running:
                return
            self._free(name)
        yield name, kind, content

    def _free(self, name: str) -> None:
        self.running.pop(name).join()
        self.free.append(self.taken.pop(name))

    def stop(self) -> None:
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


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Variables for a process that is started here: CUDA reads them when torch is imported."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _follow_parent(reports: Any) -> None:
    """Save and stop when the parent is gone; nobody reads the reports then, so the process must not wait."""
    multiprocessing.parent_process().join()
    reports.cancel_join_thread()
    os.kill(os.getpid(), signal.SIGTERM)


def _work(
    job: Job,
    slot: Mapping[str, str],
    reports: Any,
    device: str,
    threads: int,
    gpus: int,
    shows_bars: bool,
) -> None:
    """A job in its own process."""
    os.environ.update(slot)  # a process that was forked has the environment of an earlier one
    threading.Thread(target=_follow_parent, args=(reports,), daemon=True).start()
    torch.set_num_threads(threads)
    name = str(job.folder)
    error = carry_out(job, device, gpus, ReportingDisplay(name, reports.put, shows_bars))
    reports.put((name, "end", error))
