"""What reading data costs: the class index, relabelling, and whether training waits for its batches.

All on made-up files in a temporary folder, each thing beside what it is compared with, in turns.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.caf import CASES, OPTIM, incremental_method
from benchmarks.made_up import Masks, decode, write_voc
from benchmarks.measure import in_turns, ratio
from segue.core.errors import UserError
from segue.core.progress import Bar, Display
from segue.core.records import write_json
from segue.core.scenario import make_scenario
from segue.data.batches import Batches, ShuffledOrder, StepData, relabel
from segue.data.check_files import check_all
from segue.data.datasets.base import SegDataset
from segue.data.datasets.voc import Config, Voc
from segue.data.transforms import train_transform
from segue.engine.device import pick_device, synchronize
from segue.engine.record import versions
from segue.engine.train import update

CPU = torch.device("cpu")
FORMAT = "segue-bench-data-1"
SIDE = 256
"""of the images of the class index, in pixels"""
PHOTO = (500, 375)
"""width and height of the images that are trained on: VOC's"""
LOADED = 192
"""of them"""
BEGINNING = 4
"""batches that are not counted: workers start and fill their queues meanwhile"""
SMALL = CASES["small"]
CHUNK = 64


@dataclass(frozen=True)
class Row:
    """Something measured beside something else; without it the measured value is all there is to say."""

    what: str
    beside: str
    ours: float
    """seconds, or a share of time"""
    theirs: float | None = None
    ratio: float | None = None
    """ours by theirs, the median of the rounds"""


def bench_data(
    images: int | None = None,
    rounds: int = 3,
    workers: int = 2,
    device: str = "auto",
    save: Path | None = None,
    console: Console | None = None,
) -> list[Row]:
    """Measure, show one table and keep it as JSON; `images` is the number of files of the class index."""
    images = 4000 if images is None else images
    if images < 1 or rounds < 1:
        raise UserError("The benchmark needs at least one image and one round.")
    console, where = console or Console(), pick_device(device)
    display, steps = Display(console), 5
    with tempfile.TemporaryDirectory() as folder, display.bar("bench data", steps) as bar:
        indexed, loaded = Path(folder, "indexed"), Path(folder, "loaded")
        write_voc(indexed, images, SIDE, SIDE)
        write_voc(loaded, LOADED, *PHOTO)
        bar.update(1)
        rows = index_rows(indexed, rounds, bar)
        rows += relabel_rows(rounds)
        bar.update(4)
        rows.append(loader_row(loaded, 12 * rounds, workers, where))
        bar.update(5)
    console.print(_table(rows, images, where))
    if save is not None:
        figures = [asdict(row) for row in rows]
        write_json(save, {"format": FORMAT, "images": images, "versions": versions(where), "rows": figures})
    return rows


def index_rows(root: Path, rounds: int, bar: Bar) -> list[Row]:
    """The class index, of masks alone and whole, beside PIL's decoding of the same files."""
    config = Config(root=str(root))
    whole, masks = Voc(config, "train"), Masks(config, "train")
    files = [pair.mask for pair in whole.pairs], [path for pair in whole.pairs for path in pair[1:]]
    rows = []
    for number, (what, dataset, paths) in enumerate(
        (("masks", masks, files[0]), ("masks and images", whole, files[1]))
    ):
        calls = [lambda d=dataset: _index(d), *(lambda s=s, p=paths: _decode(s, p) for s in POOLS)]
        ours, *theirs = in_turns(calls, rounds, CPU)
        best = [min(each) for each in zip(*theirs, strict=True)]
        rows.append(_row(f"class index: {what}", "PIL decodes them, on all cores", ours, best))
        bar.update(2 + number)
    return rows


def relabel_rows(rounds: int) -> list[Row]:
    """A table look-up beside a mapping pixel by pixel, in two ways."""
    scenario = make_scenario(Voc.classes, "15-5")
    table = scenario.label_table(scenario[0])
    mapping = dict(enumerate(table.tolist()))
    mask = np.random.default_rng(0).choice([*range(21), 255], (512, 512)).astype(np.uint8)
    lookup = np.vectorize(lambda value: mapping[value], otypes=[np.uint8])

    def loop() -> np.ndarray:
        return np.array([[mapping[value] for value in row] for row in mask.tolist()], dtype=np.uint8)

    calls: list[Callable[[], np.ndarray]] = [lambda: relabel(table, mask), loop, lambda: lookup(mask)]
    assert all(np.array_equal(call(), table[mask]) for call in calls)
    ours, plain, vectorized = in_turns(calls, 3 * rounds, CPU)
    return [
        _row("relabelling 512 x 512", "Python, pixel by pixel", ours, plain),
        _row("relabelling 512 x 512", "np.vectorize of a function", ours, vectorized),
    ]


def loader_row(root: Path, iterations: int, workers: int, device: torch.device) -> Row:
    """The share of its time that training of a small network waits for batches."""
    dataset = Voc(Config(root=str(root)), "train")
    session = incremental_method("finetune", {}, SMALL, device)
    scenario = make_scenario(Voc.classes, SMALL.split)
    transform = train_transform(SMALL.crop, SMALL.train.scale)
    data = StepData(dataset, range(len(dataset)), scenario.label_table(scenario[-1]), transform)
    epochs = 1 + (BEGINNING + iterations) * SMALL.batch // len(dataset)
    order = ShuffledOrder(len(dataset), SMALL.batch, epochs, (0,))
    batches = iter(Batches(data, order, device, workers))
    for batch in islice(batches, BEGINNING):
        update(session, batch, OPTIM.clip, SMALL.train)
    waited, began = 0.0, time.perf_counter()
    for _ in range(iterations):
        asked = time.perf_counter()
        batch = next(batches)
        waited += time.perf_counter() - asked
        update(session, batch, OPTIM.clip, SMALL.train)
        synchronize(device)
    share = waited / (time.perf_counter() - began)
    return Row("training waits for batches", f"{SMALL.about}; {workers} workers", share)


def _threads() -> Executor:
    return ThreadPoolExecutor(os.cpu_count())


def _processes() -> Executor:
    fresh = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang
    return ProcessPoolExecutor(os.cpu_count(), mp_context=fresh)


POOLS = (_threads, _processes)
"""all cores in two ways, of which the quicker one counts; starting them counts too, as it does for us"""


def _decode(start: Callable[[], Executor], paths: Sequence[Path]) -> None:
    chunks = [paths[i : i + CHUNK] for i in range(0, len(paths), CHUNK)]
    with start() as pool:
        assert all(pool.map(decode, chunks))


def _index(dataset: SegDataset) -> None:
    """As `class_index` does it, without what it keeps."""
    assert not any(found.bad for found in check_all(dataset))


def _row(what: str, beside: str, ours: Sequence[float], theirs: Sequence[float]) -> Row:
    return Row(what, beside, statistics.median(ours), statistics.median(theirs), ratio(ours, theirs))


def _table(rows: Sequence[Row], images: int, device: torch.device) -> Table:
    threads = f"{os.cpu_count()} cores, {device.type}, {torch.get_num_threads()} threads"
    table = Table(
        title=f"Cost of reading data: {images} images of {SIDE} px; {threads}",
        caption="medians of rounds in turns, of each round's own ratio too; below 1 is quicker",
    )
    for name in ("what", "beside", "ours", "theirs", "ratio"):
        left = name in ("what", "beside")
        table.add_column(name, justify="left" if left else "right", overflow="fold")
    for row in rows:
        if row.theirs is None:
            table.add_row(row.what, row.beside, f"{row.ours:.1%} of the time", "", "")
            continue
        table.add_row(row.what, row.beside, _time(row.ours), _time(row.theirs), f"{row.ratio:.3g}")
    return table


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 0.1 else f"{1000 * seconds:.2f} ms"
