"""What the nodes of a cluster are like, found out before anything is trained: packages, folders, room.

Nothing here imports torch: these functions run on every node first, and quickly.
"""

from __future__ import annotations

import os
import platform
import secrets
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import segue
from segue.core.errors import UserError

PACKAGES = ("torch", "torchvision", "timm", "numpy")
"""packages that decide numbers, beside Segue and Python"""
PROBE = ".segue-probe"


@dataclass(frozen=True)
class Question:
    """What every node is asked."""

    here: Path
    """folder in which the command was typed: relative paths begin there"""
    probe: Path
    token: str
    """content of the probe"""
    needed: tuple[str, ...] = ()
    """files and folders that the recipes name"""


@dataclass(frozen=True)
class Finding:
    """What a node has."""

    host: str
    versions: Mapping[str, str]
    shares: bool
    """whether the probe is there, with its content, in a folder that can be written"""
    lacks: tuple[str, ...] = ()
    """files and folders that are not there"""


def look_around(question: Question) -> Finding:
    """On a node: what is there."""
    lacks = [] if question.here.is_dir() else [str(question.here)]
    lacks += [path for path in question.needed if not (question.here / path).exists()]
    try:
        shares = question.probe.read_text() == question.token and os.access(question.probe.parent, os.W_OK)
    except OSError:
        shares = False
    return Finding(platform.node(), package_versions(), shares, tuple(lacks))


def package_versions() -> dict[str, str]:
    """Versions without what stands behind '+', such as the kind of GPU that torch was built for."""
    found = {"segue": segue.__version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name).partition("+")[0]
        except PackageNotFoundError:
            found[name] = "none"
    return found


@contextmanager
def question(out: Path, needed: Sequence[str] = ()) -> Iterator[Question]:
    """A question, with a probe in the folder of the runs as long as it is asked."""
    out.mkdir(parents=True, exist_ok=True)
    token = secrets.token_hex(8)
    probe = (out / f"{PROBE}-{token}").resolve()
    probe.write_text(token)
    try:
        yield Question(Path.cwd(), probe, token, tuple(needed))
    finally:
        probe.unlink(missing_ok=True)


def check_finding(finding: Finding, own: Mapping[str, str], out: Path) -> None:
    """Refuse a node on which runs would fail, or would have other numbers."""
    for name, ours in own.items():
        if (theirs := finding.versions.get(name, "none")) != ours:
            raise UserError(
                f"Node {finding.host} has {name} {theirs}, but here it is {name} {ours}: runs would differ by"
                f" node. Install the same version on all nodes."
            )
    if not finding.shares:
        raise UserError(
            f"Node {finding.host} does not share the folder {out.resolve()} with this machine: name one on a"
            " disk that all nodes can write, with --out."
        )
    if finding.lacks:
        raise UserError(
            f"Node {finding.host} has no {finding.lacks[0]}: data, weights and method files have to be at the"
            " same place on all nodes."
        )


@dataclass(frozen=True)
class Need:
    """What each run takes of a node."""

    device: str
    cpus: int
    gpus: int


def need_of_a_run(
    nodes: Sequence[Mapping[str, float]], jobs: int, device: str, gpus_per_run: int = 1
) -> Need:
    """CPUs and GPUs of each run, from what the nodes have: all GPUs are used, or else all CPUs."""
    if device not in ("auto", "cpu", "cuda"):
        raise UserError(f"--device {device}: on a cluster it is auto, cpu or cuda; Ray chooses which GPU.")
    with_gpus = [node for node in nodes if node.get("GPU", 0) >= gpus_per_run]
    if device != "cpu" and with_gpus:
        share = min(int(node.get("CPU", 1)) * gpus_per_run // int(node["GPU"]) for node in with_gpus)
        return Need("cuda", max(1, share), gpus_per_run)
    if device == "cuda" or gpus_per_run > 1:
        raise UserError(f"No node of the cluster has {gpus_per_run} GPUs for a run (--device {device}).")
    cpus = [int(node.get("CPU", 0)) for node in nodes if node.get("CPU", 0) >= 1]
    if not cpus:
        raise UserError("No node of the cluster offers a CPU: start them with 'ray start --num-cpus N'.")
    return Need("cpu", max(1, min(*cpus, sum(cpus) // jobs) if jobs else 1), 0)


class Mailbox:
    """Reports of all runs, until the command fetches them; an actor on the node of the command."""

    def __init__(self) -> None:
        self._reports = deque[Any]()

    def put(self, report: Any) -> None:
        self._reports.append(report)

    def take(self) -> list[Any]:
        taken = list(self._reports)
        self._reports.clear()
        return taken
