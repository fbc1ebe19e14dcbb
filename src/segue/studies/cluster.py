"""Runs on a Ray cluster: a task each, with its need of CPUs and GPUs.

Ray chooses the node, waits for room, and starts the tasks of a dead node again elsewhere; they go on from
their checkpoints, since all nodes share the folder of the runs.
"""

from __future__ import annotations

import os
import platform
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import segue
from segue.core.errors import UserError, reason
from segue.core.extras import needed
from segue.core.progress import Display
from segue.engine.start import has_first_step
from segue.studies.carry_out import carry_out
from segue.studies.jobs import Job, Report, ReportingDisplay, Workers, work_off
from segue.studies.nodes import (
    Mailbox,
    Need,
    check_finding,
    look_around,
    need_of_a_run,
    package_versions,
    question,
)

RESTARTS = 5
"""times that a run is started again after its node or its process has died"""
CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 120.0
"""longest wait for the answers of all nodes, before training"""
REFRESH_SECONDS = 1.0
SEEN_SECONDS = 60.0
"""longest wait until a node sees on the shared disk what another has written"""


def run_on_cluster(
    jobs: Sequence[Job], device: str, display: Display, keep_going: bool, workers: Workers
) -> None:
    """Carry out jobs on the cluster that `workers` names. All nodes are looked at first."""
    assert workers.cluster is not None and all(job.resume for job in jobs)
    with _connected(workers.cluster) as (ray, dashboard):
        nodes = [node for node in ray.nodes() if node["Alive"]]
        need = need_of_a_run([node["Resources"] for node in nodes], len(jobs), device, workers.gpus_per_run)
        _check_nodes(ray, nodes, jobs)
        gpus = f" and {need.gpus} GPUs" if need.gpus else ""
        display.say(f"Ray cluster of {len(nodes)} nodes; each run has {need.cpus} CPUs{gpus}.")
        if dashboard:
            display.say(f"Dashboard: http://{dashboard}")
        try:
            work_off(jobs, RayTasks(ray, need, display.shows_bars), display, keep_going)
        except ray.exceptions.RayError as error:
            reason = str(error).strip().splitlines()[0]
            raise UserError(f"The cluster is lost: {reason} The same command goes on.") from error


@contextmanager
def _connected(address: str) -> Iterator[tuple[Any, str]]:
    """Ray, connected to a cluster that is there, and the address of its dashboard."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    ray = needed("ray", "cluster", "--cluster")
    needed("ray.exceptions", "cluster", "--cluster")
    _check_address(address)
    here = Path.cwd()
    # Ray's workers look for modules in the folder that is current now: none are taken from the user's
    os.chdir(Path(segue.__file__).parent.parent)
    try:
        found = ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"The Ray cluster '{address}' cannot be reached: {reason} Start one with 'ray start --head', or"
            " leave out --cluster to use this machine alone."
        ) from error
    finally:
        os.chdir(here)
    try:
        yield ray, found.dashboard_url or ""
    finally:
        ray.shutdown()


def _check_address(address: str) -> None:
    """Ray itself waits for minutes where nobody answers."""
    where = os.environ.get("RAY_ADDRESS", "") if address == "auto" else address
    if not where or where == "auto":
        return
    host, _, port = where.rpartition(":")
    if "://" in where or not host or not port.isdigit():
        raise UserError(
            f"The Ray cluster '{where}': should be auto or HOST:PORT, and the command be typed on a node of"
            " the cluster (or handed over with 'ray job submit')."
        )
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        raise UserError(
            f"The Ray cluster '{where}' cannot be reached: {reason(error)}. 'ray status' on its"
            " first node shows whether it runs."
        ) from error


def _check_nodes(ray: Any, nodes: Sequence[Any], jobs: Sequence[Job]) -> None:
    """Every node answers, has our packages, sees our folders."""
    out = Path(os.path.commonpath([job.folder.resolve().parent for job in jobs]))
    with question(out, _needed(jobs)) as asked:
        task = ray.remote(look_around)
        answers = [
            task.options(num_cpus=0, max_retries=0, scheduling_strategy=_on(node["NodeID"])).remote(asked)
            for node in nodes
        ]
        own = package_versions()
        deadline = time.monotonic() + ANSWER_SECONDS
        for node, answer in zip(nodes, answers, strict=True):
            name = node["NodeManagerHostname"]
            try:
                finding = ray.get(answer, timeout=max(1.0, deadline - time.monotonic()))
            except ray.exceptions.GetTimeoutError as error:
                raise UserError(f"Node {name} does not answer: 'ray status' shows its state.") from error
            except ray.exceptions.RayError as error:
                reason = str(error).strip().splitlines()[-1]
                raise UserError(
                    f"Node {name} cannot work: {reason} Is Segue {own['segue']} installed there?"
                ) from error
            check_finding(finding, own, out)


def _on(node: str) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node, soft=False)


def _needed(jobs: Sequence[Job]) -> list[str]:
    """Files and folders that recipes name."""
    found = dict[str, None]()
    for job in jobs:
        config = job.config
        names = (config.method.name, config.scenario.dataset)
        paths = [getattr(config.data, "root", None), config.model.weights, config.scenario.manifest]
        paths += [name for name in names if name.endswith(".py")]
        found.update({str(path): None for path in paths if path})
    return list(found)


class RayTasks:
    """Hands every job over to Ray, which has a queue of its own."""

    has_room = True

    def __init__(self, ray: Any, need: Need, shows_bars: bool) -> None:
        self.ray, self.need = ray, need
        here = ray.get_runtime_context().get_node_id()
        self.mailbox = ray.remote(Mailbox).options(num_cpus=0, scheduling_strategy=_on(here)).remote()
        # a process per run: what one leaves behind does not reach the next
        self.task = ray.remote(num_cpus=need.cpus, num_gpus=need.gpus, max_retries=RESTARTS, max_calls=1)(
            _work
        )
        self.names: dict[Any, str] = {}
        self.shows_bars = shows_bars

    def start(self, job: Job) -> None:
        start = job.start if job.start is not None and has_first_step(job.start) else None
        job = replace(job, start=start)
        task = self.task.options(name=job.folder.name)
        self.names[task.remote(job, str(Path.cwd()), self.need, self.mailbox, self.shows_bars)] = str(
            job.folder
        )

    def reports(self) -> Iterator[Report]:
        ended, _ = self.ray.wait([*self.names], num_returns=len(self.names), timeout=0.5)
        yield from self.ray.get(self.mailbox.take.remote())  # after: what an ended run has said is there
        for each in ended:
            name = self.names.pop(each)
            try:
                error = self.ray.get(each)
            except self.ray.exceptions.RayError as trouble:
                error = f"{Path(name).name}: {str(trouble).strip().splitlines()[-1]}"
            yield name, "end", error

    def stop(self) -> None:
        """Ask every run to save and end, wherever it is; a second Ctrl-C does not wait."""
        for each in self.names:
            self.ray.cancel(each, force=False)
        try:
            while self.names:
                ended, _ = self.ray.wait([*self.names], timeout=1.0)
                for each in ended:
                    del self.names[each]
        except KeyboardInterrupt:
            for each in self.names:
                self.ray.cancel(each, force=True)
            raise


def _work(job: Job, here: str, need: Need, mailbox: Any, shows_bars: bool) -> str | None:
    """A job on a node; returns what went wrong, if something did."""
    os.chdir(here)
    torch.set_num_threads(need.cpus)
    name = str(job.folder)
    mailbox.put.remote((name, "begin", f"on {platform.node()}"))
    _wait_until_seen(job)
    display = ReportingDisplay(name, mailbox.put.remote, shows_bars, REFRESH_SECONDS)
    try:
        return carry_out(job, need.device, need.gpus, display)
    except SystemExit as error:  # Ray would start it again
        return f"{job.folder.name}: the process ended with exit code {error.code or 0}."


def _wait_until_seen(job: Job) -> None:
    """The node that asked for this run has seen step 0 of the other; a shared disk may show it here later."""
    deadline = time.monotonic() + SEEN_SECONDS
    while job.start is not None and not has_first_step(job.start) and time.monotonic() < deadline:
        time.sleep(0.5)
