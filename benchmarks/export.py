"""Exported models: does an ONNX file say what the model says, and how quick is it?

The model of every method is trained briefly on scenes, so that its classes are told apart. Larger networks
and tiny ones of every family that is adopted have random weights: agreement in 8 bit says little there, and
times of tiny ones neither. All files do the same work (normalise, network, upsample, mask) on one thread, and
take turns.
"""

from __future__ import annotations

import json
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
from torch import Tensor

from benchmarks import families
from benchmarks.caf import CASES
from benchmarks.measure import in_turns
from segue.core import plugins
from segue.core.progress import Display
from segue.core.records import write_json
from segue.deploy.adopt import adopt
from segue.deploy.export.endings import ONNX
from segue.deploy.export.extra import reason_of
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
from segue.models.network import Network
from segue.models.segmenter import Segmenter

FORMAT = "segue-bench-export-1"
DATASET, SPLIT = "scenes", "4-2"
WORDS = ("train.epochs=4", "train.epochs_next=4", "eval.samples=0")
CALIBRATED, MEASURED = 16, 64
"""images of the training and the test set"""
SIDE = 256
"""side of the timed image, unless a network has its own"""
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
    scale: float
    """largest logit, by its size"""
    changed: float
    """share of pixels whose class changes"""
    agreement: float | None
    """share of pixels that have the same class in 8 bit; None: no such file"""
    miou: tuple[float, float] | None
    """mean IoU in float32 and in 8 bit, in points; None: not trained"""
    eager: float
    compiled: float | None
    onnx: float
    int8: float | None
    remark: str = ""


def bench_export(
    names: Sequence[str] = ("all",),
    cases: Sequence[str] = (),
    adopted: Sequence[str] = (),
    rounds: int = 5,
    save: Path | None = None,
    console: Console | None = None,
) -> list[Row]:
    """Measure the models of the named methods, the networks of `cases`, and families of adopted ones."""
    console, threads = console or Console(), torch.get_num_threads()
    chosen = plugins.names("method") if list(names) == ["all"] else list(names)
    work = [(_method, name) for name in chosen] + [(_case, name) for name in cases]
    work += [(_family, name) for name in adopted]
    torch.set_num_threads(1)
    try:
        record = {"format": FORMAT, "versions": versions(CPU), "words": list(WORDS), "rounds": rounds}
        begun = Begun(save, record)
        with Display(console).bar("bench export", len(work)) as bar:
            for place, (measure_one, name) in enumerate(work):
                if name not in begun.rows:
                    begun.add(name, measure_one(name, rounds))
                bar.update(place + 1, name)
    finally:
        torch.set_num_threads(threads)
    rows = [begun.rows[name] for _, name in work]
    console.print(table(rows))
    if save is not None:
        write_json(save, {**record, "rows": [asdict(row) for row in rows]})
        begun.file(save).unlink()
    return rows


class Begun:
    """Rows of a measurement that takes half an hour: one that was stopped goes on from them."""

    def __init__(self, save: Path | None, record: dict[str, Any]) -> None:
        self.save, self.record, self.rows = save, json.loads(json.dumps(record)), dict[str, Row]()
        if save is not None and self.file(save).is_file():
            stored = json.loads(self.file(save).read_text(encoding="utf-8"))
            rows = stored.pop("rows")
            if stored == self.record:
                self.rows = {name: Row(**row) for name, row in rows.items()}

    @staticmethod
    def file(save: Path) -> Path:
        return save.with_suffix(".part")

    def add(self, name: str, row: Row) -> None:
        self.rows[name] = row
        if self.save is not None:
            rows = {name: asdict(row) for name, row in self.rows.items()}
            write_json(self.file(self.save), {**self.record, "rows": rows})


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
    return measure(name, model, images, SIDE, rounds)


def _case(name: str, rounds: int) -> Row:
    case = CASES[name]
    seed_all(0)
    network = Segmenter(case.model)
    for step in case.scenario:
        network.grow(step, balanced=False)
    classes = case.scenario.channel_names(case.scenario[-1])
    model = Model(network.eval(), classes, Preparation(case.crop))
    return measure(case.about.split(",")[0], model, _pictures(case.crop), case.crop, rounds)


def _family(name: str, rounds: int) -> Row:
    seed_all(0)
    network = families.lively(families.NETWORKS[name]())
    model = adopt(network, families.CLASSES, families.MEAN, families.STD)
    return measure(name, model, _pictures(SIDE), SIDE, rounds, name in families.ONE_SIZE)


def _pictures(side: int) -> Samples:
    photos = tuple(each.transpose(1, 2, 0) for each in picture((8, 3, side, side), 1))
    return Samples(photos[:4], photos[4:], None, "")


def measure(what: str, model: Model, images: Samples, side: int, rounds: int, one_size: bool = False) -> Row:
    """`one_size`: a file for that side alone, for networks that cannot be exported otherwise; no 8 bit."""
    fixed = side if one_size else None
    module = ImageToLogits(model.network, len(model.classes)).eval()
    about = metadata(About(model.classes, model.colours, model.images), stride_of(module.network))
    content, remark = encode(module, example("uint8", fixed), ONNX, about, one_size)
    difference = compare(model.network, runner(content, ONNX, module.names), "uint8", fixed)
    small, cost = (None, None) if one_size else make_smaller(content, "int8", images)
    photo = picture((1, 3, side, side), 2)
    calls = {"eager": _in_torch(module, photo), "onnx": _in_onnx(content, photo)}
    torch.compiler.reset()  # it gives up on code that it has compiled for several networks
    compiled, failed = _in_torch(torch.compile(module), photo), ""
    try:
        compiled()
        calls["compiled"] = compiled
    except Exception as error:  # whatever a compiler may raise
        failed = f"torch.compile failed: {reason_of(error)}"
    if small is not None:
        calls["int8"] = _in_onnx(small, photo)
    times = in_turns(list(calls.values()), rounds, CPU)
    medians = {name: 1000 * statistics.median(own) for name, own in zip(calls, times, strict=True)}
    miou = None if cost is None or cost.miou is None else (100 * cost.miou[0], 100 * cost.miou[1])
    alone = f"exported for {side} x {side} pixels alone" if one_size else ""
    return Row(
        what,
        _words(model.network),
        side,
        difference.largest,
        difference.scale,
        difference.changed,
        None if cost is None else cost.agreement,
        miou,
        medians["eager"],
        medians.get("compiled"),
        medians["onnx"],
        medians.get("int8"),
        remark="; ".join(each for each in (remark, alone, failed) if each),
    )


def _in_torch(module: Callable[[Tensor], Any], image: np.ndarray) -> Callable[[], Any]:
    tensor = torch.from_numpy(image)

    @torch.inference_mode()
    def once() -> Any:
        return module(tensor)

    return once


def _in_onnx(content: bytes, image: np.ndarray) -> Callable[[], Any]:
    session = open_session(content, "cpu", threads=1)
    return lambda: session.run([LOGITS, MASK], {IMAGE: image})


def _words(network: Network) -> str:
    if not isinstance(network, Segmenter):
        return f"{sum(weight.numel() for weight in network.parameters()) / 1e6:.2f} M weights"
    fusion = "" if network.fusion is None else f", {type(network.fusion).__name__}"
    return f"{network.config.backbone}, {type(network.classifier).__name__}{fusion}"


def table(rows: Sequence[Row]) -> Table:
    shown = Table(title="exported models, ms per image on one thread")
    for head in ("model", "network", "largest", "changed", "torch", "compile", "onnxruntime", "int8"):
        shown.add_column(head, justify="left" if head in ("model", "network") else "right")
    shown.add_column("same in int8", justify="right")
    shown.add_column("mIoU", justify="right")
    for row in rows:
        times = (f"{each:.1f}" if each else "-" for each in (row.eager, row.compiled, row.onnx, row.int8))
        scores = "-" if row.miou is None else f"{row.miou[0]:.1f} -> {row.miou[1]:.1f}"
        agreement = "-" if row.agreement is None else f"{100 * row.agreement:.2f} %"
        parity = (f"{row.largest:.1e}", f"{100 * row.changed:.3g} %")
        shown.add_row(row.what, row.network, *parity, *times, agreement, scores)
    return shown
