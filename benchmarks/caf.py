"""What CAF costs: its training iteration against MiB's and its test-time model against the plain network.

Everything is measured in one run on the same inputs, in turns, so that the ratios hold on a noisy machine.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.measure import in_own_process, in_turns, ratio
from segue.core import plugins
from segue.core.classes import ClassTable
from segue.core.config import ModelConfig, OptimConfig, TrainConfig, validate
from segue.core.errors import UserError
from segue.core.overrides import merge
from segue.core.progress import Display
from segue.core.records import write_json
from segue.core.scenario import Scenario, make_scenario
from segue.data.batches import Batch
from segue.engine.device import peak_memory, pick_device, reset_peak_memory
from segue.engine.recipe import resolve
from segue.engine.record import versions
from segue.engine.seeds import seed_all
from segue.engine.train import Session, update
from segue.methods.base import Method, StepContext
from segue.models.segmenter import Segmenter

FORMAT = "segue-bench-caf-1"
OPTIM = OptimConfig(lr_first=1e-3, lr_next=1e-3)


@dataclass(frozen=True)
class Case:
    """A network and an input size."""

    about: str
    model: ModelConfig
    crop: int
    batch: int
    classes: int = 20
    split: str = "15-5"

    @property
    def train(self) -> TrainConfig:
        return TrainConfig(batch_size=max(self.batch, 2), crop=self.crop)

    @property
    def scenario(self) -> Scenario:
        names = {i: f"class {i}" for i in range(1, self.classes + 1)}
        return make_scenario(ClassTable("bench", names), self.split)


CASES = {
    "resnet101": Case("ResNet-101, DeepLab-v3 head, 512 px, batch 1", ModelConfig(), 512, 1),
    "small": Case(
        "EfficientNet-Lite0, small head, 128 px, batch 16",
        ModelConfig(backbone="tf_efficientnet_lite0", head="lite"),
        128,
        16,
    ),
}


@dataclass(frozen=True)
class Measured:
    """Medians of both sides, and the median of their ratios, round by round."""

    what: str
    plain: float
    ours: float
    ratio: float
    unit: str = "s"


def bench_caf(
    names: Sequence[str],
    words: Sequence[str] = (),
    rounds: int = 5,
    device: str = "auto",
    save: Path | None = None,
    console: Console | None = None,
) -> dict[str, list[Measured]]:
    """Measure the named cases, show one table, and keep it as JSON; `words` change the settings of CAF."""
    console, where = console or Console(), pick_device(device)
    if strange := [word for word in words if not word.startswith("method.params.")]:
        raise UserError(f"'{strange[0]}' has no effect here: only method.params.KEY=VALUE changes CAF.")
    params = asdict(resolve("caf", "scenes", "5-2", overrides=words).method.params)
    fused, skipped = (merge(params, {"modality_dropout": share}) for share in (0.0, 1.0))
    found: dict[str, list[Measured]] = {}
    display = Display(console)
    for name in names:
        case = CASES[name]
        with display.bar(f"bench {name}", 5) as bar:
            found[name] = [_training(case, fused, "training iteration, with fusion", rounds, where)]
            bar.update(1)
            found[name].append(_training(case, skipped, "training iteration, without fusion", rounds, where))
            bar.update(2)
            found[name].append(_inference(case, params, rounds, where))
            bar.update(3)
            plain, ours = (_memory(case, *each, device) for each in (("mib", {}), ("caf", fused)))
            found[name].append(Measured("peak memory of training", plain, ours, ours / plain, "MiB"))
            bar.update(5)
    console.print(_table(found, where))
    if save is not None:
        cases = {CASES[name].about: [asdict(row) for row in rows] for name, rows in found.items()}
        write_json(
            save, {"format": FORMAT, "words": list(words), "versions": versions(where), "cases": cases}
        )
    return found


def incremental_method(
    name: str | type[Method], params: Mapping[str, Any], case: Case, device: torch.device
) -> Session:
    """A method at the start of its second step, ready to be trained."""
    kind = plugins.find("method", name) if isinstance(name, str) else name
    seed_all(0)
    method: Method = kind(validate(kind.Config, params, "method.params"), Segmenter(case.model))
    method = method.to(device, memory_format=torch.channels_last)
    for step in case.scenario:
        method.grow(step)
        method.to(device)
    generator = torch.Generator().manual_seed(0)
    method.model.norm_frozen = True
    method.train()
    method.begin_step(StepContext(step, [], device, generator))
    return Session.start(method, step, OPTIM, case.train, device, generator)


def random_batch(case: Case, device: torch.device) -> Batch:
    generator = torch.Generator().manual_seed(1)
    size = (case.batch, case.crop, case.crop)
    images = torch.randint(0, 256, (case.batch, 3, case.crop, case.crop), generator=generator)
    labels = torch.randint(0, case.classes + 1, size, generator=generator)
    labels[labels <= len(case.scenario.groups[0])] = 0
    keys = [str(i) for i in range(case.batch)]
    images = images.to(torch.uint8).contiguous(memory_format=torch.channels_last)
    return Batch(images.to(device), labels.to(device), keys)


def _training(case: Case, params: dict[str, Any], what: str, rounds: int, device: torch.device) -> Measured:
    batch = random_batch(case, device)
    sessions = [incremental_method(*each, case, device) for each in (("mib", {}), ("caf", params))]
    runs = [lambda s=session: update(s, batch, OPTIM.clip, case.train) for session in sessions]
    return _in_turns(what, *runs, rounds, device)


def _inference(case: Case, params: dict[str, Any], rounds: int, device: torch.device) -> Measured:
    images = random_batch(case, device).images
    models = [
        incremental_method(*each, case, device).method.deployed() for each in (("mib", {}), ("caf", params))
    ]

    def run(model: Segmenter) -> None:
        with torch.inference_mode():
            model(images)

    runs = [lambda m=model: run(m) for model in models]
    return _in_turns("inference, skip against plain", *runs, rounds * 3, device)


def _in_turns(
    what: str, plain: Callable[[], Any], ours: Callable[[], Any], rounds: int, device: torch.device
) -> Measured:
    times = in_turns((plain, ours), rounds, device)
    return Measured(what, *map(statistics.median, times), ratio(times[1], times[0]))


def _memory(case: Case, name: str, params: dict[str, Any], device: str) -> float:
    """Peak of two training iterations in a process of its own, in MiB."""
    return in_own_process(_peak, case, name, params, device) / 2**20


def _peak(case: Case, name: str, params: dict[str, Any], device: str) -> int:
    where = pick_device(device)
    reset_peak_memory(where)
    batch = random_batch(case, where)
    session = incremental_method(name, params, case, where)
    for _ in range(2):
        update(session, batch, OPTIM.clip, case.train)
    return peak_memory(where)


def _table(found: Mapping[str, Sequence[Measured]], device: torch.device) -> Table:
    table = Table(
        title=f"Cost of CAF on {device.type}, {torch.get_num_threads()} threads",
        caption="medians of rounds in turns; by default CAF fuses in half of its iterations",
    )
    for name in ("what", "MiB", "CAF", "ratio"):
        table.add_column(name, justify="left" if name == "what" else "right")
    for name, rows in found.items():
        table.add_section()
        table.add_row(CASES[name].about, "", "", "", style="bold")
        for row in rows:
            digits = 0 if row.unit == "MiB" else 3
            table.add_row(
                f"  {row.what}",
                f"{row.plain:.{digits}f} {row.unit}",
                f"{row.ours:.{digits}f} {row.unit}",
                f"{row.ratio:.2f}",
            )
    return table
