"""What each method costs: a training iteration's time and memory against fine-tuning's, and what it keeps.

All methods are measured with their recipes for scenes, on one and the same batch, at their second step: only
there do they differ from fine-tuning. An offline method has one step and is measured in it. At this size a
process is mostly torch itself, so memory is what a process grows by from before the method is built.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.measure import growth, in_own_process, in_turns, ratio
from segue.core import plugins
from segue.core.config import RunConfig
from segue.core.costs import Cost, Costs
from segue.core.progress import Display
from segue.core.scenario import Step
from segue.data.batches import Batch
from segue.engine.build import build_method
from segue.engine.data import build_data
from segue.engine.device import pick_device
from segue.engine.recipe import resolve
from segue.engine.record import versions
from segue.engine.seeds import derive_seed, seed_all
from segue.engine.train import Session, update
from segue.methods.base import Method, StepContext
from segue.plan.footprint import own_state

REFERENCE = "finetune"
DATASET, SPLIT = "scenes", "4-2"
BATCHES = 3
"""of each step: enough for what a method gathers when a step begins or ends"""
ITERATIONS = 4
"""in a turn: what a method does in some iterations only has its share of the time"""
PROCESSES = 3
"""whose median is a method's memory"""
MIB = 2**20


@dataclass(frozen=True)
class Subject:
    """A method's recipe, and the steps it goes through with the first batches of each."""

    config: RunConfig
    steps: tuple[Step, ...]
    batches: tuple[list[Batch], ...]

    @classmethod
    def load(cls, name: str, device: torch.device) -> Subject:
        config = resolve(name, DATASET, SPLIT)
        data = build_data(config, Display(quiet=True))
        steps = tuple(data.scenario[:2])
        batches = tuple(list(islice(data.one_pass(step.index, device), BATCHES)) for step in steps)
        return cls(config, steps, batches)

    def start(self, device: torch.device) -> Session:
        """The method, ready to be trained in the last of its steps; the ones before are trained briefly."""
        config, method = self.config, build_method(self.config, device)
        for step, batches in zip(self.steps, self.batches, strict=True):
            seed_all(derive_seed(config.train.seed, step.index))
            method.grow(step)
            method.model.norm_frozen = config.train.norm == "frozen" and not step.first
            method.train()
            generator = torch.Generator().manual_seed(derive_seed(config.train.seed, step.index, 1))
            context = StepContext(step, batches, device, generator)
            method.begin_step(context)
            session = Session.start(method, step, config.optim, config.train, device, generator)
            if step is not self.steps[-1]:
                self.iterate(session, batches)
                method.end_step(context)
        return session

    def iterate(self, session: Session, batches: Sequence[Batch]) -> None:
        """Iterations; for a method without them, what it does with these batches at the end of a step."""
        method = session.method
        if not method.trains(method.step):
            context = StepContext(method.step, batches, session.device, session.generator)
            method.end_step(context)
            return
        for batch in batches:
            update(session, batch, self.config.optim.clip, self.config.train)


def bench_methods(
    names: Sequence[str] = ("all",),
    rounds: int = 15,
    save: Path | None = None,
    device: str = "auto",
    console: Console | None = None,
) -> Costs:
    """Measure the named methods and fine-tuning; show one table, and write it if asked to."""
    console, where = console or Console(), pick_device(device)
    display = Display(console)
    subjects = {name: Subject.load(name, where) for name in _chosen(names)}
    sessions = {name: subject.start(where) for name, subject in subjects.items()}
    kept = {name: kept_bytes(session.method) for name, session in sessions.items()}
    times = _times(subjects, sessions, rounds, where, display)
    memory = _memory(list(subjects), device, display)
    batch = subjects[REFERENCE].batches[-1][0]
    costs = Costs(
        command=f"python -m benchmarks methods --methods {','.join(names)} --rounds {rounds}",
        versions=versions(where),
        setting=f"{DATASET} {SPLIT}, step 1, batch {len(batch)} of {batch.images.shape[-1]} px",
        threads=torch.get_num_threads(),
        methods={
            name: Cost(
                time=round(times[name], 3),
                memory=round(memory[name] / memory[REFERENCE], 3),
                memory_mib=round((memory[name] - memory[REFERENCE]) / MIB, 1),
                kept_mib=None if kept[name] is None else round(kept[name] / MIB, 4),
            )
            for name in subjects
        },
    )
    console.print(costs_table(costs))
    if save is not None:
        costs.write(save)
    return costs


def kept_bytes(method: Method) -> int | None:
    """What stands beside the model between steps: the method's state in a checkpoint, and its teacher.

    None for an offline method, which keeps images. Nor are the images of a memory counted.
    """
    if method.offline:
        return None
    kept = list(own_state(method).values())
    if method.teacher is not None:
        kept += [*method.teacher.model.parameters(), *method.teacher.model.buffers()]
    return sum(tensor.nbytes for tensor in kept)


def costs_table(costs: Costs) -> Table:
    device = costs.versions["device"]
    table = Table(
        title=f"{costs.setting}; {device}, {costs.threads} threads",
        caption="time of an iteration and peak memory relative to fine-tuning",
    )
    for name in ("method", "time", "memory", "extra memory", "kept between steps"):
        table.add_column(name, justify="left" if name == "method" else "right")
    for name, cost in costs.methods.items():
        kept = "-" if cost.kept_mib is None else f"{cost.kept_mib:.2f} MiB"
        table.add_row(name, f"{cost.time:.2f}", f"{cost.memory:.2f}", f"{cost.memory_mib:.1f} MiB", kept)
    return table


def _chosen(names: Sequence[str]) -> list[str]:
    """Fine-tuning and the named methods, each once; a wrong name is refused before anything is measured."""
    chosen = [REFERENCE]
    for name in names:
        chosen += plugins.names("method") if name == "all" else [name]
    for name in chosen:
        plugins.find("method", name)
    return list(dict.fromkeys(chosen))


def _times(
    subjects: Mapping[str, Subject],
    sessions: Mapping[str, Session],
    rounds: int,
    device: torch.device,
    display: Display,
) -> dict[str, float]:
    """Time of an iteration relative to fine-tuning's in the same round."""
    batches = subjects[REFERENCE].batches[-1][:1] * ITERATIONS
    calls = [lambda n=name: subjects[n].iterate(sessions[n], batches) for name in subjects]
    with display.bar("bench time", rounds + 1) as bar:
        seconds = dict(zip(subjects, in_turns(calls, rounds, device, bar), strict=True))
    return {name: ratio(seconds[name], seconds[REFERENCE]) for name in subjects}


def _memory(names: Sequence[str], device: str, display: Display) -> dict[str, float]:
    """Bytes by which training each method raises the peak of a process."""
    peaks: dict[str, list[int]] = {name: [] for name in names}
    with display.bar("bench memory", PROCESSES * len(names)) as bar:
        for turn in range(PROCESSES):
            for position, name in enumerate(names):
                peaks[name].append(in_own_process(extra_peak, name, device))
                bar.update(turn * len(names) + position + 1, name)
    return {name: statistics.median(values) for name, values in peaks.items()}


def extra_peak(name: str, device: str) -> int:
    """How far a method raises this process's peak: built, brought to its second step, trained a little."""
    torch.set_num_threads(1)  # several wait for each other on a busy machine, and have stacks of their own
    where = pick_device(device)
    subject = Subject.load(name, where)
    batch = Subject.load(REFERENCE, where).batches[-1][0]
    return growth(lambda: subject.iterate(subject.start(where), [batch] * BATCHES), where)
