"""What `segue serve` answers under load, beside plain FastAPI servers with the same model.

Two things make ours quick, and the plain servers part them: two have the model as it is, two have it as ours
has (norms folded into convolutions, channels last). None of the four batches; two work in the event loop, two
in threads. Every server is a process of its own; clients press on one after the other, in turns, from here.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from rich.table import Table

from benchmarks.caf import CASES
from benchmarks.http_clients import Load, load
from segue.core.config import ModelConfig
from segue.core.errors import UserError
from segue.core.progress import Display
from segue.core.records import write_json
from segue.deploy.model import Model
from segue.deploy.prepare import Preparation
from segue.engine.record import versions
from segue.models.segmenter import Segmenter

FORMAT = "segue-bench-serve-2"
OURS = "segue serve"
PLAIN, FOLDED = ("plain, inline", "plain, threads"), ("folded, inline", "folded, threads")
SERVERS = (OURS, *PLAIN, *FOLDED)
YARDSTICK = 3
"""times that ours is under load for as long as each of the others"""
CLASSES = 21
START_SECONDS = 120.0
WARM_SECONDS = 3.0


@dataclass
class Row:
    """One server over all of its turns."""

    what: str
    requests: int = 0
    seconds: float = 0.0
    """time under load"""
    per_second: float = 0.0
    p50: float = 0.0
    """milliseconds that half of the requests take at most"""
    p99: float = 0.0
    """milliseconds that 99 of 100 requests take at most"""
    cpu: float = 0.0
    """milliseconds of processor time for each answer; other programs disturb it less"""
    refused: int = 0
    """requests that got 429"""
    errors: list[str] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    """MiB of the process after each turn; first after warming up"""


def bench_serve(
    seconds: float = 60,
    clients: int = 64,
    turns: int = 3,
    save: Path | None = None,
    model: ModelConfig | None = None,
    side: int = 128,
    console: Console | None = None,
) -> list[Row]:
    """Load `segue serve` for so many seconds and each of the others for a third of that, in turns."""
    config = model or CASES["small"].model
    image = _photo(side)
    rows, times = [Row(what) for what in SERVERS], [[] for _ in SERVERS]
    with running(config, side) as servers, Display().bar("bench serve", turns * len(rows)) as bar:
        for address, _ in servers:
            load(address, image, clients, min(WARM_SECONDS, seconds))
        for turn in range(turns):
            for place, (row, (address, process)) in enumerate(zip(rows, servers, strict=True)):
                if turn == 0:
                    row.memory.append(_memory(process))
                began = _cpu(process)
                period = seconds / turns if row.what == OURS else seconds / turns / YARDSTICK
                found = load(address, image, clients, period)
                _add(row, times[place], found)
                row.cpu += _cpu(process) - began
                row.memory.append(_memory(process))
                bar.update(turn * len(rows) + place + 1)
    for row, own in zip(rows, times, strict=True):
        _sum_up(row, own)
    (console or Console()).print(_table(rows, clients, side))
    if save is not None:
        write_json(save, {**_document(rows, clients, side), "seconds": seconds})
    return rows


def ratio(rows: Sequence[Row], others: Sequence[str] = PLAIN) -> float:
    """Throughput by that of the best of some other servers."""
    speed = {row.what: row.per_second for row in rows}
    return speed[OURS] / max(speed[what] for what in others)


def _photo(side: int) -> bytes:
    file = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 256, (side // 8, side // 8, 3), dtype=np.uint8)
    Image.fromarray(noise).resize((side, side)).save(file, format="PNG")
    return file.getvalue()


def _model(config: ModelConfig, side: int) -> Model:
    torch.manual_seed(0)
    network = Segmenter(config)
    network.classifier.grow(CLASSES, balanced=False)
    names = ("background", *(f"class {index}" for index in range(1, CLASSES)))
    return Model(network.eval(), names, Preparation(side))


@contextmanager
def running(config: ModelConfig, side: int) -> Iterator[list[tuple[str, BaseProcess]]]:
    """Addresses and processes of all servers."""
    context = multiprocessing.get_context("spawn")
    bound = [socket.create_server(("127.0.0.1", 0)) for _ in SERVERS]
    processes = [
        context.Process(target=_serve, args=(what, own, config, side), daemon=True)
        for what, own in zip(SERVERS, bound, strict=True)
    ]
    for process in processes:
        process.start()
    places = [f"http://127.0.0.1:{own.getsockname()[1]}" for own in bound]
    try:
        for place, process in zip(places, processes, strict=True):
            _until_it_answers(place, process, _photo(side))
        yield list(zip(places, processes, strict=True))
    finally:
        for process in processes:
            process.terminate()
            process.join()
        for own in bound:
            own.close()


def _serve(what: str, bound: socket.socket, config: ModelConfig, side: int) -> None:
    from segue.deploy.serve.predictors import TorchPredictor, served, staged

    model = _model(config, side)
    if what == OURS:
        from segue.deploy.serve.run import serve

        serve(served([(Path("model"), staged(model))]), bound)
    else:
        from benchmarks.plain_server import serve_plain

        if what in FOLDED:
            model = replace(model, network=TorchPredictor(model).network)
        serve_plain(model, bound, "inline" if "inline" in what else "threads")


def _until_it_answers(address: str, process: BaseProcess, image: bytes) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.is_alive():
        if load(address, image, 1, 0.01).seconds:
            return
        time.sleep(0.2)
    raise UserError("A server did not start.")


def _memory(process: BaseProcess) -> float:
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _cpu(process: BaseProcess) -> float:
    """Milliseconds of processor time that a process has had."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return 1000 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _add(row: Row, times: list[float], found: Load) -> None:
    times += found.seconds
    row.seconds += found.period
    row.refused += found.refused
    row.errors += found.errors


def _sum_up(row: Row, times: Sequence[float]) -> None:
    row.requests = len(times)
    row.per_second = row.requests / row.seconds
    row.cpu /= max(1, row.requests)
    if times:
        row.p50, row.p99 = (1000 * float(value) for value in np.percentile(times, [50, 99]))


def _table(rows: Sequence[Row], clients: int, side: int) -> Table:
    plain, folded = ratio(rows), ratio(rows, FOLDED)
    title = (
        f"{clients} clients, {side} px; ours by plain {plain:.2f}, by folded (batching alone) {folded:.2f}"
    )
    table = Table("server", "answers/s", "p50 ms", "p99 ms", "CPU ms", "429", "errors", "MiB", title=title)
    for row in rows:
        memory = f"{row.memory[0]:.0f} to {row.memory[-1]:.0f}"
        figures = (f"{row.per_second:.0f}", f"{row.p50:.0f}", f"{row.p99:.0f}", f"{row.cpu:.1f}")
        table.add_row(row.what, *figures, str(row.refused), str(len(row.errors)), memory)
    return table


def _document(rows: Sequence[Row], clients: int, side: int) -> dict[str, object]:
    return {
        "format": FORMAT,
        "versions": versions(torch.device("cpu")),
        "about": CASES["small"].about.split(", batch")[0],
        "clients": clients,
        "side": side,
        "ratio": ratio(rows),
        "ratio_folded": ratio(rows, FOLDED),
        "rows": [asdict(row) for row in rows],
    }
