"""What an iteration costs: CAF's and MiB's against the floor under both, and against MiB the plain way.

The floor is the bare network alone: the student forward and backward, the teacher forward, no losses and no
optimiser. The plain way is MiB with losses that upsample everything, a teacher that is a mere copy, and batch
norm as it is. All on the same batch in one process, in turns; memory in processes of their own.
"""

from __future__ import annotations

import copy
import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from benchmarks import plain
from benchmarks.caf import CASES as NETWORKS
from benchmarks.caf import OPTIM, Case, incremental_method, random_batch
from benchmarks.measure import growth, in_own_process, in_turns, ratio
from segue.core.progress import Display
from segue.core.records import write_json
from segue.core.scenario import Step
from segue.data.batches import Batch
from segue.engine.device import pick_device
from segue.engine.record import versions
from segue.engine.train import update
from segue.methods.base import Method
from segue.methods.mib import MiB
from segue.models._speed.fold import unlink_norms

FORMAT = "segue-bench-step-1"
CHANNELS = {21: (20, "15-5"), 151: (150, "100-50")}
"""channels -> classes and split: VOC's and ADE20K's"""
MIB = 2**20


@dataclass(frozen=True)
class StepRow:
    """A network and a number of channels."""

    network: str
    about: str
    channels: int
    rounds: int
    seconds: dict[str, float]
    """medians, by subject"""
    memory: dict[str, float]
    """MiB that a process grows by, by subject"""
    caf_by_floor: float
    """a mean iteration of CAF by the floor, the median of the rounds"""
    fused_by_floor: float
    mib_by_floor: float
    mib_faster: float
    """the plain way's time by that of MiB here"""
    caf_faster: float
    """the plain way's time by that of CAF here"""
    mib_leaner: float
    caf_leaner: float


def cases(names: Sequence[str]) -> list[tuple[str, Case]]:
    return [
        (name, replace(NETWORKS[name], classes=classes, split=split))
        for name in names
        for classes, split in CHANNELS.values()
    ]


def bench_step(
    names: Sequence[str] = tuple(NETWORKS),
    rounds: int = 5,
    device: str = "auto",
    save: Path | None = None,
    console: Console | None = None,
) -> list[StepRow]:
    """Measure the named networks with both numbers of channels, show a table each, and keep them as JSON.

    Rows of other networks that the file holds already stay there.
    """
    console, where = console or Console(), pick_device(device)
    chosen = cases(names)
    with Display(console).bar("bench step", len(chosen)) as bar:
        rows = []
        for done, (name, case) in enumerate(chosen):
            rows.append(_row(name, case, rounds, device))
            bar.update(done + 1)
    for name in names:
        console.print(_table([row for row in rows if row.network == name], where))
    if save is not None:
        stored = json.loads(save.read_text())["rows"] if save.is_file() else []
        figures = [row for row in stored if row["network"] not in names] + [asdict(row) for row in rows]
        write_json(save, {"format": FORMAT, "versions": versions(where), "rows": figures})
    return rows


def _row(name: str, case: Case, rounds: int, device: str) -> StepRow:
    where = pick_device(device)
    batch = random_batch(case, where)
    calls = [setup(case, batch, where) for setup in SETUPS.values()]
    times = dict(zip(SETUPS, in_turns(calls, rounds, where), strict=True))
    memory = {subject: in_own_process(_growth, case, subject, device) / MIB for subject in SETUPS}
    caf = [(a + b) / 2 for a, b in zip(times["caf fused"], times["caf alone"], strict=True)]
    return StepRow(
        network=name,
        about=case.about,
        channels=case.classes + 1,
        rounds=rounds,
        seconds={subject: statistics.median(own) for subject, own in times.items()},
        memory=memory,
        caf_by_floor=ratio(caf, times["floor"]),
        fused_by_floor=ratio(times["caf fused"], times["floor"]),
        mib_by_floor=ratio(times["mib"], times["floor"]),
        mib_faster=ratio(times["mib plain"], times["mib"]),
        caf_faster=ratio(times["mib plain"], caf),
        mib_leaner=memory["mib plain"] / memory["mib"],
        caf_leaner=memory["mib plain"] / memory["caf fused"],
    )


def _growth(case: Case, subject: str, device: str) -> int:
    """Bytes by which a process grows from before the method is built to its peak in training."""
    where = pick_device(device)
    batch = random_batch(case, where)

    def train() -> None:
        iteration = SETUPS[subject](case, batch, where)
        for _ in range(2):
            iteration()

    return growth(train, where)


# What is measured


Setup = Callable[[Case, Batch, torch.device], Callable[[], Any]]


def _method(name: str | type[Method], params: Mapping[str, Any], checkpoint: bool = False) -> Setup:
    """A whole iteration of a method, as the engine makes it."""

    def setup(case: Case, batch: Batch, device: torch.device) -> Callable[[], Any]:
        session = incremental_method(name, params, case, device)
        if checkpoint:
            session.method.model.checkpoint()
        return lambda: update(session, batch, OPTIM.clip, case.train)

    return setup


def _floor(case: Case, batch: Batch, device: torch.device) -> Callable[[], Any]:
    method = incremental_method("mib", {}, case, device).method

    def iteration() -> None:
        method.teacher(batch.images)
        logits = method.model(batch.images).logits
        logits.backward(torch.ones_like(logits))
        for parameter in method.parameters():
            parameter.grad = None

    return iteration


class PlainMiB(Method):
    """MiB with losses and teacher written the plain way; the loop and the optimiser are the engine's."""

    Config = MiB.Config
    about = MiB.about
    balanced_init = True

    def grow(self, step: Step) -> None:
        if not step.first:
            unlink_norms(self.model)
            teacher = copy.deepcopy(self.model).eval().requires_grad_(False)
            self.old = [teacher]  # in a list: no part of this module
        super().grow(step)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        with torch.no_grad():
            old_logits = self.old[0](batch.images).logits
        logits = self.model(batch.images).logits
        labelled, distilled = plain.incremental_losses(logits, old_logits, batch.labels, self.step.num_old)
        return {"ce": labelled, "kd": self.config.kd_weight * distilled}


SETUPS: dict[str, Setup] = {
    "floor": _floor,
    "mib plain": _method(PlainMiB, {}),
    "mib": _method("mib", {}),
    "caf fused": _method("caf", {"modality_dropout": 0.0}),
    "caf alone": _method("caf", {"modality_dropout": 1.0}),
    "caf checkpointed": _method("caf", {"modality_dropout": 0.0}, checkpoint=True),
}
"""CAF fuses the old features in half of its iterations and does without them in the others"""


def _table(rows: Sequence[StepRow], device: torch.device) -> Table:
    table = Table(
        title=f"An iteration of {rows[0].about}; {device.type}, {torch.get_num_threads()} threads",
        caption="floor: the bare network, no losses; plain: MiB that upsamples everything; CAF: the mean of"
        " iterations with and without fusion, its memory that with fusion",
    )
    names = ("floor", "plain MiB", "MiB", "CAF", "MiB by floor", "CAF by floor", "CAF by plain")
    for name in ("channels", "", *names):
        table.add_column(name, justify="right" if name else "left", overflow="fold")
    for row in rows:
        time, memory = row.seconds, row.memory
        caf = (time["caf fused"] + time["caf alone"]) / 2
        seconds = (time["floor"], time["mib plain"], time["mib"], caf)
        ratios = (row.mib_by_floor, row.caf_by_floor, 1 / row.caf_faster)
        table.add_row(str(row.channels), "s", *(f"{value:.2f}" for value in (*seconds, *ratios)))
        grown = [memory[subject] for subject in ("floor", "mib plain", "mib", "caf fused")]
        ratios = (grown[2] / grown[0], grown[3] / grown[0], 1 / row.caf_leaner)
        table.add_row("", "MiB", *(f"{value:.0f}" for value in grown), *(f"{value:.2f}" for value in ratios))
    return table
