"""How far a plan's memory is from what training takes: each case planned, then really trained.

Every measurement has a process of its own, on one thread. What is compared is growth: the process's peak in a
few iterations of the last step less its size before the method was built, when a tiny one had been trained so
that torch's own code was there. A plan is about tensors, so the allocator of the C library is told to give
back at once what is free; the peak with its usual hoard is measured beside it.
"""

from __future__ import annotations

import gc
import os
import statistics
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.measure import growth, in_own_process
from segue.core import plugins
from segue.core.config import RunConfig
from segue.core.progress import Display
from segue.core.records import write_json
from segue.core.scenario import Scenario
from segue.engine.build import build_scenario
from segue.engine.device import pick_device
from segue.engine.recipe import resolve
from segue.engine.record import versions
from segue.engine.train import update
from segue.plan.footprint import footprint, made_up_batch, step_session

PLAN_FORMAT = "segue-bench-plan-1"
ITERATIONS = 3
MIB = 2**20


@dataclass(frozen=True)
class Case:
    """A recipe, in the words of the command line."""

    method: str
    dataset: str
    split: str
    words: tuple[str, ...]

    @property
    def config(self) -> RunConfig:
        return resolve(self.method, self.dataset, self.split, overrides=self.words)

    @property
    def scenario(self) -> Scenario:
        return build_scenario(self.config, plugins.find("dataset", self.dataset))[0]

    @property
    def command(self) -> str:
        return f"segue plan {self.method} --on {self.dataset} --split {self.split} {' '.join(self.words)}"


CASES = {
    "MobileNet-v2, 128 px, batch 16": Case(
        "caf", "voc", "15-5",
        ("preset=paper", "model.backbone=mobilenetv2_100", "model.head=lite", "train.crop=128",
         "train.batch_size=16"),
    ),
    "ResNet-50, 256 px, batch 4": Case(
        "caf", "voc", "15-5",
        ("preset=paper", "model.backbone=resnet50", "train.crop=256", "train.batch_size=4"),
    ),
    "ResNet-101, 512 px, batch 2": Case("caf", "ade20k", "100-10", ("preset=paper", "train.batch_size=2")),
}  # fmt: skip


TINY = Case(
    "caf", "voc", "15-5", ("model.backbone=tiny", "model.head=tiny", "model.output_stride=8", "train.crop=64")
)


@dataclass(frozen=True)
class Compared:
    """One case, in MiB."""

    command: str
    planned: float
    measured: float
    """median of the rounds"""
    rounds: tuple[float, ...]
    hoarding: float
    """median where the C library keeps what is free"""

    @property
    def ratio(self) -> float:
        return self.planned / self.measured


@dataclass(frozen=True)
class PlanBench:
    """All cases, and what they were measured with."""

    command: str
    versions: dict[str, str]
    cases: dict[str, Compared]

    def write(self, path: str | Path) -> None:
        cases = {name: {**asdict(case), "ratio": round(case.ratio, 3)} for name, case in self.cases.items()}
        document = {"command": self.command, "versions": self.versions, "cases": cases}
        write_json(path, {"format": PLAN_FORMAT, **document})


def bench_plan(
    rounds: int = 3,
    device: str = "auto",
    save: Path | None = None,
    console: Console | None = None,
    cases: Mapping[str, Case] = CASES,
) -> PlanBench:
    """Plan and train every case; show one table, and write it if asked to."""
    console, found = console or Console(), {}
    with Display(console).bar("bench plan", len(cases) * rounds) as bar:
        for number, (name, case) in enumerate(cases.items()):
            planned = in_own_process(planned_peak, case) / MIB
            tight, usual = [], []
            for turn in range(rounds):
                bar.update(number * rounds + turn, name)
                usual.append(round(in_own_process(measured_peak, case, device) / MIB, 1))
                with _giving_back():
                    tight.append(round(in_own_process(measured_peak, case, device) / MIB, 1))
            middles = statistics.median(tight), statistics.median(usual)
            found[name] = Compared(case.command, round(planned, 1), middles[0], tuple(tight), middles[1])
    result = PlanBench(f"python -m benchmarks plan --rounds {rounds}", versions(pick_device(device)), found)
    console.print(plan_table(result))
    if save is not None:
        result.write(save)
    return result


@contextmanager
def _giving_back() -> Iterator[None]:
    """Processes that are started inside give freed memory back to the system (where it is glibc's)."""
    names = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, str(2**16)))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def planned_peak(case: Case) -> int:
    """Bytes that the plan foresees for the last step."""
    torch.set_num_threads(1)
    config, scenario = case.config, case.scenario
    session = step_session(config, scenario, len(scenario) - 1, torch.device("cpu"))
    return footprint(session, config, scenario[-1]).peak(config.train.batch_size)


def measured_peak(case: Case, device: str) -> int:
    """Bytes by which training the last step raises the peak of this process."""
    torch.set_num_threads(1)  # several threads have stacks and workspaces of their own
    config, scenario, where = case.config, case.scenario, pick_device(device)
    step_session(TINY.config, TINY.scenario, 1, where)

    def train() -> None:
        session = step_session(config, scenario, len(scenario) - 1, where)
        gc.collect()  # copies of models of the steps before, which Python would let go at some time
        batch = made_up_batch(session.method, scenario[-1], config.train.batch_size, config, where)
        for _ in range(ITERATIONS):
            update(session, batch, config.optim.clip, config.train)

    return growth(train, where)


def plan_table(result: PlanBench) -> Table:
    table = Table(title="Peak memory of training, planned and measured")
    for name in ("case", "planned", "measured", "ratio", "with hoard"):
        table.add_column(name, justify="left" if name == "case" else "right")
    for name, case in result.cases.items():
        sizes = [f"{size:.0f} MiB" for size in (case.planned, case.measured, case.hoarding)]
        table.add_row(name, *sizes[:2], f"{case.ratio:.2f}", sizes[2])
    return table
