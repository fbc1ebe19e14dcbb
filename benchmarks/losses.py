"""The pixel losses against the same formulas written the plain way (plain.py): time and memory.

Value and gradient of each, on the same maps in the same process, in turns; memory in processes of their own.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from benchmarks import plain
from benchmarks.measure import growth, in_own_process, in_turns, ratio
from segue import losses
from segue.core.progress import Display
from segue.core.records import write_json
from segue.engine.device import pick_device
from segue.engine.record import versions

FORMAT = "segue-bench-losses-1"
STRIDE = 16
WARM_UP = 64
"""side in pixels of a first small call: what torch sets up once is not counted"""


@dataclass(frozen=True)
class Maps:
    """Sizes of what the losses get."""

    channels: int
    num_old: int
    batch: int = 4
    side: int = 512

    def draw(self, device: torch.device, batch: int, side: int) -> tuple[Tensor, Tensor, Tensor]:
        """The student's and the teacher's logits at the model's stride, and labels with void."""
        generator, low = torch.Generator().manual_seed(0), side // STRIDE
        new = 3 * torch.randn(batch, self.channels, low, low, generator=generator)
        old = 3 * torch.randn(batch, self.num_old, low, low, generator=generator)
        labels = torch.randint(0, self.channels + 1, (batch, side, side), generator=generator)
        labels[labels < self.num_old] = 0
        labels[labels == self.channels] = 255
        return new.to(device).requires_grad_(), old.to(device), labels.to(device)


CASES = (Maps(21, 16), Maps(151, 101))
Loss = Callable[[Tensor, Tensor, Tensor], Sequence[Tensor]]


def _plain_pair(prefix: str) -> Loss:
    first, second = (getattr(plain, f"{prefix}{name}") for name in ("cross_entropy", "distillation"))

    def both(new: Tensor, old: Tensor, labels: Tensor) -> Sequence[Tensor]:
        new, size = losses.upsample(new, labels.shape[-2:]), labels.shape[-2:]  # once, for both
        return first(new, labels), second(new, old, size)

    return both


LOSSES: dict[str, tuple[Loss, Loss]] = {
    "unbiased cross-entropy and distillation": (
        lambda new, old, labels: losses.incremental_losses(new, old, labels, old.shape[1]),
        lambda new, old, labels: plain.incremental_losses(new, old, labels, old.shape[1]),
    ),
    "cross-entropy": (
        lambda new, old, labels: (losses.cross_entropy(new, labels),),
        lambda new, old, labels: (plain.cross_entropy(new, labels),),
    ),
    "cross-entropy and distillation": (losses.distilled_cross_entropy, _plain_pair("")),
    "binary cross-entropy and distillation": (losses.distilled_binary_cross_entropy, _plain_pair("binary_")),
}
"""ours, and the plain way"""


@dataclass(frozen=True)
class LossRow:
    """A loss at one size."""

    what: str
    channels: int
    num_old: int
    seconds: float
    plain_seconds: float
    faster: float
    """the plain way's time by ours, the median of the rounds"""
    memory: float
    """MiB that a process grows by"""
    plain_memory: float
    leaner: float


def bench_losses(
    rounds: int = 5, device: str = "auto", save: Path | None = None, console: Console | None = None
) -> list[LossRow]:
    """Measure every loss at every size, show one table, and keep it as JSON."""
    console, where = console or Console(), pick_device(device)
    work = [(maps, name) for maps in CASES for name in LOSSES]
    rows = []
    with Display(console).bar("bench losses", len(work)) as bar:
        for done, (maps, name) in enumerate(work):
            rows.append(_row(maps, name, rounds, device))
            bar.update(done + 1)
    console.print(_table(rows, where))
    if save is not None:
        figures = [asdict(row) for row in rows]
        sizes = {"batch": CASES[0].batch, "side": CASES[0].side, "stride": STRIDE}
        write_json(save, {"format": FORMAT, **sizes, "versions": versions(where), "rows": figures})
    return rows


def _row(maps: Maps, name: str, rounds: int, device: str) -> LossRow:
    where = pick_device(device)
    given = maps.draw(where, maps.batch, maps.side)
    calls = [lambda loss=loss: _call(loss, given) for loss in LOSSES[name]]
    ours, plainly = in_turns(calls, rounds, where)
    memory = [in_own_process(_growth, maps, name, side, device) / 2**20 for side in (0, 1)]
    return LossRow(
        name, maps.channels, maps.num_old,
        statistics.median(ours), statistics.median(plainly), ratio(plainly, ours),
        memory[0], memory[1], memory[1] / memory[0],
    )  # fmt: skip


def _call(loss: Loss, given: tuple[Tensor, Tensor, Tensor]) -> None:
    """Value and gradient."""
    given[0].grad = None
    sum(loss(*given)).backward()


def _growth(maps: Maps, name: str, side: int, device: str) -> int:
    """Bytes by which one call makes a process grow at its peak."""
    where = pick_device(device)
    loss = LOSSES[name][side]
    _call(loss, maps.draw(where, 1, WARM_UP))
    given = maps.draw(where, maps.batch, maps.side)
    return growth(lambda: _call(loss, given), where)


def _table(rows: Sequence[LossRow], device: torch.device) -> Table:
    table = Table(
        title=f"Pixel losses: batch {CASES[0].batch}, {CASES[0].side} px, stride {STRIDE}; {device.type},"
        f" {torch.get_num_threads()} threads",
        caption="value and gradient; plain: interpolate, then the loss, by autograd",
    )
    for name in ("loss", "channels", "s", "plain", "faster", "MiB", "plain", "leaner"):
        table.add_column(name, justify="left" if name == "loss" else "right", overflow="fold")
    for row in rows:
        table.add_row(
            row.what, str(row.channels), f"{row.seconds:.3f}", f"{row.plain_seconds:.3f}",
            f"{row.faster:.1f}x", f"{row.memory:.0f}", f"{row.plain_memory:.0f}", f"{row.leaner:.0f}x",
        )  # fmt: skip
    return table
