"""`segue export`: a model becomes a file for other programs, which is compared with it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from segue.core.errors import UserError
from segue.core.records import atomic_file
from segue.deploy.export.endings import GRAPHS, ONNX, ending_of
from segue.deploy.export.extra import onnx_package
from segue.deploy.export.formats import encode
from segue.deploy.export.metadata import About, metadata
from segue.deploy.export.module import ClosedBackground, ImageToLogits, InputKind, example, stride_of
from segue.deploy.export.outputs import Outputs
from segue.deploy.export.samples import generated, read_samples
from segue.deploy.export.seal import sealed
from segue.deploy.export.smaller import Cost, Smaller, make_smaller
from segue.deploy.export.verify import Difference, compare, refuse_changed, runner

if TYPE_CHECKING:
    from segue.deploy.model import Model


@dataclass(frozen=True)
class Wanted:
    """What an exported file should be, beside its format."""

    outputs: Outputs = "all"
    """logits and mask at the image's size and the map at the network's stride, or one of the first two"""
    input: InputKind = "uint8"
    """type of the image's numbers, which are 0..255 in both"""
    smaller: Smaller | None = None
    """16 or 8 bit instead of 32"""
    images: str | Path | None = None
    """folder of images that a smaller file is calibrated on and measured with"""
    size: int | None = None
    """height and width of the images that the file takes; None: any"""


def check_export(path: str | Path, wanted: Wanted) -> str:
    """The ending of a file that can be written so; what cannot be is known before the work begins."""
    ending, smaller = ending_of(path), wanted.smaller
    if ending not in GRAPHS and wanted != Wanted():
        raise UserError(f"{path} holds weights as they are: other choices go with {ONNX}.")
    if ending != ONNX and smaller is not None:
        raise UserError(f"--{smaller} makes ONNX files: name one that ends in {ONNX}, not {ending}.")
    if smaller == "int8" and wanted.images is None:
        raise UserError(
            "--int8 learns the range of every map from images: name a folder of some with --images FOLDER."
        )
    if smaller is None and wanted.images is not None:
        raise UserError("--images goes with --int8 or --half: nothing else needs images.")
    if smaller is not None and wanted.outputs not in ("all", "logits"):
        raise UserError(f"--{smaller} is measured by logits: leave out '--output {wanted.outputs}'.")
    if smaller is not None and wanted.size is not None:
        raise UserError(f"--{smaller} is measured on images of many sizes: leave out --size.")
    for package in ("onnx", "onnxscript", "onnxruntime") if ending == ONNX else ():
        onnx_package(package)
    return ending


@dataclass(frozen=True)
class Report:
    """What was written."""

    path: Path
    size: int
    """bytes"""
    difference: Difference
    cost: Cost | None = None
    remark: str = ""
    side: int | None = None
    """height and width of the images that the file takes; None: any"""

    def lines(self) -> list[str]:
        """The report in words."""
        share, largest = 100 * self.difference.changed, self.difference.largest
        logits = "" if math.isnan(largest) else f", largest difference of a logit {largest:.2g}"
        sizes = "two sizes" if self.side is None else f"{self.side} x {self.side}"
        found = [f"Compared with the model at {sizes} and batch 2: {share:.3g} % of pixels changed{logits}"]
        if self.cost is not None:
            found += _cost_lines(self.cost)
        return [*found, *(f"Remark: {each}" for each in (self.difference.remark, self.remark) if each)]


def _cost_lines(cost: Cost) -> list[str]:
    lines = [
        f"Against float32, {cost.what}: {100 * cost.agreement:.2f} % of pixels have the same class,"
        f" {cost.size:.2f}x the bytes, {cost.speed:.2f}x the speed here"
    ]
    if cost.miou is not None:
        before, after = (100 * score for score in cost.miou)
        lines.append(f"mIoU {before:.2f} -> {after:.2f} ({after - before:+.2f} points)")
    return lines


def export_graph(model: Model, path: str | Path, wanted: Wanted) -> Report:
    """Write an ONNX, TorchScript or torch.export file; nothing is left of one that differs from the model."""
    ending, samples = check_export(path, wanted), generated()
    if wanted.images is not None:
        samples = read_samples(wanted.images, model.classes, model.images.bits)
    about = About(model.classes, model.colours, model.images)
    network = ClosedBackground(model.network) if model.closed else model.network
    module = ImageToLogits(network, len(model.classes), wanted.outputs).eval()
    with atomic_file(path) as file:
        words, side = metadata(about, stride_of(module.network), wanted.size), wanted.size
        content, remark = encode(module, example(wanted.input, side), ending, words, side is not None)
        content = sealed(content) if ending == ONNX else content
        run = runner(content, ending, module.names)
        difference, cost = compare(network, run, wanted.input, side), None
        refuse_changed(difference, str(path))
        if wanted.smaller is not None:
            content, cost = make_smaller(content, wanted.smaller, samples)
        file.write(content)
    return Report(Path(path), len(content), difference, cost, remark, side)
