"""Exported models: does an ONNX file say what the model says, and how quick is it?

The model of every method is trained briefly on scenes, so that its classes are told apart. Networks of other
kinds are as they come, with random weights: agreement in 8 bit says little there, times do. All files do the
same work (normalise, network, upsample, mask) on one thread, and take turns.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from benchmarks.caf import CASES
from benchmarks.measure import in_turns
from segue.core import plugins
from segue.core.progress import Display
from segue.core.records import write_json
from segue.deploy.export.endings import ONNX
from segue.deploy.export.formats import encode
from segue.deploy.export.metadata import About, metadata
from segue.deploy.export.module import ImageToLogits, example, stride_of
from segue.deploy.export.outputs import IMAGE, LOGITS, MASK
from segue.deploy.export.pictures import picture
from segue.deploy.export.samples import Samples
from segue.deploy.export.smaller import make_smaller
from segue.deploy.export.verify import compare, runner
from segue.deploy.load import load_run
from segue.deploy.model import Model
from segue.deploy.onnx_model import open_session
from segue.deploy.prepare import Preparation
from segue.deploy.verdict import channel_table
from segue.engine.build import open_set
from segue.engine.recipe import resolve
from segue.engine.record import versions
from segue.engine.run import run
from segue.engine.seeds import seed_all
from segue.models.segmenter import Segmenter

FORMAT = "segue-bench-export-1"
DATASET, SPLIT = "scenes", "4-2"
WORDS = ("train.epochs=4", "train.epochs_next=4", "eval.samples=0")
CALIBRATED, MEASURED = 16, 64
"""images of the training and the test set"""
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Row:
    """One model; times are milliseconds per image, medians over the rounds."""

    what: str
    network: str
    pixels: int
    """side of the image that is timed"""
    largest: float
    """largest difference of a logit between torch and onnxruntime"""
    changed: float
    """share of pixels whose class changes"""
    agreement: float
    """share of pixels that have the same class in 8 bit"""
    miou: tuple[float, float] | None
    """mean IoU in float32 and in 8 bit, in points; None: not trained"""
    eager: float
    compiled: float
    onnx: float
    int8: float
    remark: str = ""


def bench_export(
    names: Sequence[str] = ("all",),
    cases: Sequence[str] = (),
    rounds: int = 5,
    save: Path | None = None,
    console: Console | None = None,
) -> list[Row]:
    """Measure the models of the named methods, and the networks of `cases`."""
    console, threads = console or Console(), torch.get_num_threads()
    chosen = plugins.names("method") if list(names) == ["all"] else list(names)
    rows = []
    torch.set_num_threads(1)
    try:
        with Display(console).bar("bench export", len(chosen) + len(cases)) as bar:
            for place, name in enumerate([*chosen, *cases]):
                rows.append(_method(name, rounds) if name in chosen else _case(name, rounds))
                bar.update(place + 1, name)
        record = {"format": FORMAT, "versions": versions(CPU), "words": list(WORDS)}
    finally:
        torch.set_num_threads(threads)
    console.print(table(rows))
    if save is not None:
        write_json(save, {**record, "rows": [asdict(row) for row in rows]})
    return rows


def _method(name: str, rounds: int) -> Row:
    config = resolve(name, DATASET, SPLIT, overrides=list(WORDS))
    with tempfile.TemporaryDirectory() as folder:
        run(config, Path(folder) / "run", display=Display(quiet=True))
        model = load_run(Path(folder) / "run", device="cpu")
    train, test = (open_set(config, split) for split in ("train", "test"))
    seen = tuple(train.read(index).image for index in range(min(CALIBRATED, len(train))))
    samples = [test.read(index) for index in range(min(MEASURED, len(test)))]
    labels = channel_table(test.classes, model.classes)
    truth = tuple(labels[sample.mask] for sample in samples)
    images = Samples(seen, tuple(sample.image for sample in samples), truth, "")
    return measure(name, model, images, 256, rounds)


def _case(name: str, rounds: int) -> Row:
    case = CASES[name]
    seed_all(0)
    network = Segmenter(case.model)
    for step in case.scenario:
        network.grow(step, balanced=False)
    classes = case.scenario.channel_names(case.scenario[-1])
    model = Model(network.eval(), classes, Preparation(case.crop))
    photos = tuple(each.transpose(1, 2, 0) for each in picture((8, 3, case.crop, case.crop), 1))
    return measure(
        case.about.split(",")[0], model, Samples(photos[:4], photos[4:], None, ""), case.crop, rounds
    )


def measure(what: str, model: Model, images: Samples, side: int, rounds: int) -> Row:
    module = ImageToLogits(model.network, len(model.classes)).eval()
    about = metadata(About(model.classes, model.colours, model.images), stride_of(module.network))
    content, remark = encode(module, example("uint8"), ONNX, about)
    difference = compare(model.network, runner(content, ONNX, module.names), "uint8")
    small, cost = make_smaller(content, "int8", images)
    photo = picture((1, 3, side, side), 2)
    calls = [
        *_in_torch(module, torch.from_numpy(photo)),
        *(_in_onnx(each, photo) for each in (content, small)),
    ]
    seconds = [statistics.median(times) for times in in_turns(calls, rounds, CPU)]
    return Row(
        what,
        _words(model.network),
        side,
        difference.largest,
        difference.changed,
        cost.agreement,
        None if cost.miou is None else (100 * cost.miou[0], 100 * cost.miou[1]),
        *(1000 * each for each in seconds),
        remark=remark,
    )


def _in_torch(module: nn.Module, image: Tensor) -> list[Callable[[], Any]]:
    compiled = torch.compile(module)

    def call(function: Callable[[Tensor], Any]) -> Callable[[], Any]:
        @torch.inference_mode()
        def once() -> Any:
            return function(image)

        return once

    return [call(module), call(compiled)]


def _in_onnx(content: bytes, image: np.ndarray) -> Callable[[], Any]:
    session = open_session(content, "cpu", threads=1)
    return lambda: session.run([LOGITS, MASK], {IMAGE: image})


def _words(network: Segmenter) -> str:
    fusion = "" if network.fusion is None else f", {type(network.fusion).__name__}"
    return f"{network.config.backbone}, {type(network.classifier).__name__}{fusion}"


def table(rows: Sequence[Row]) -> Table:
    shown = Table(title="exported models, ms per image on one thread")
    for head in ("model", "network", "largest", "changed", "torch", "compile", "onnxruntime", "int8"):
        shown.add_column(head, justify="left" if head in ("model", "network") else "right")
    shown.add_column("same in int8", justify="right")
    shown.add_column("mIoU", justify="right")
    for row in rows:
        times = (f"{each:.1f}" for each in (row.eager, row.compiled, row.onnx, row.int8))
        scores = "-" if row.miou is None else f"{row.miou[0]:.1f} -> {row.miou[1]:.1f}"
        agreement = f"{100 * row.agreement:.2f} %"
        parity = (f"{row.largest:.1e}", f"{100 * row.changed:.3g} %")
        shown.add_row(row.what, row.network, *parity, *times, agreement, scores)
    return shown
