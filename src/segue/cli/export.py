"""`segue export`: a model for other programs, as a folder or as one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from segue.cli._stories import USE
from segue.cli._tell import quote, tell, tell_next
from segue.cli.options import StepOption, flag, named_path
from segue.core.errors import UserError
from segue.deploy.export.endings import TORCH_EXPORT, TORCHSCRIPT

STORY, PLACE = USE, 7
IN_PYTHON = {
    TORCHSCRIPT: "import torch; torch.jit.load",
    TORCH_EXPORT: "import torch; torch.export.load",
}
NATIVE = {
    "hf": "import transformers as hf; hf.AutoModelForSemanticSegmentation.from_pretrained({folder!r})",
    "smp": "import segmentation_models_pytorch as smp; smp.from_pretrained({folder!r})",
    "torchvision": "import safetensors.torch as st; st.load_file({folder!r} + '/weights.safetensors')",
}
"""how code of a network's own library reads what --native writes"""


def command(
    source: Annotated[
        str, typer.Argument(metavar="MODEL", help="Run folder, model folder, model file, or hf:FOLDER.")
    ],
    out: Annotated[
        Path,
        typer.Argument(
            metavar="OUT",
            parser=named_path,
            help="File to write (.onnx, .pt: TorchScript, .pt2: torch.export, .safetensors), or folder.",
        ),
    ],
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="adopt.KEY=VALUE", help="Of a network from elsewhere: adopt.classes=cat,dog."),
    ] = None,
    step: StepOption = None,
    output: Annotated[
        Literal["all", "logits", "mask", "probabilities"],
        typer.Option(
            "--output", metavar="OUTPUT", help="all, or one of logits, mask, probabilities (one output)."
        ),
    ] = "all",
    input: Annotated[
        Literal["uint8", "float32"],
        typer.Option("--input", metavar="TYPE", help="Type of the image: uint8 or float32, both 0..255."),
    ] = "uint8",
    half: Annotated[bool, flag("--half", help="ONNX with numbers of 16 bit.")] = False,
    int8: Annotated[bool, flag("--int8", help="ONNX with numbers of 8 bit; needs --images.")] = False,
    images: Annotated[
        Path | None,
        typer.Option(
            "--images",
            metavar="FOLDER",
            help="Images to calibrate on and to measure with; with classes.txt and masks also mIoU.",
        ),
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(
            "--size",
            metavar="N",
            min=32,
            max=8192,
            help="One size of image, N x N, for programs or networks that want it; any unless given.",
        ),
    ] = None,
    native: Annotated[
        bool, flag("--native", help="An adopted network as its own library writes it: a folder.")
    ] = False,
) -> None:
    """Write a model for other programs: ONNX, TorchScript, torch.export, safetensors or a model folder.

    segue export runs/caf-voc-15-5-overlapped-s42 model

    segue export model model.onnx

    segue export model small.onnx --int8 --images photos

    The file is compared with the model before it is kept. A folder also holds what the method keeps between
    steps: it can be extended as well as the run can.
    """
    from segue.cli._adopted import open_source
    from segue.core.progress import Display
    from segue.core.records import is_run
    from segue.deploy.export.write import Wanted, check_export
    from segue.deploy.load import load_run

    if half and int8:
        raise UserError("--half and --int8 exclude each other: choose one.")
    smaller = "half" if half else "int8" if int8 else None
    ending = check_export(out, Wanted(output, input, smaller, images, size))
    of_run = is_run(source)
    if step is not None and not of_run:
        raise UserError(f"{source} is no run folder: --step goes with runs, a model has one state.")
    if of_run and not words:
        model = load_run(source, step, device="cpu")
    else:
        model, _, others = open_source(source, words or [], "cpu", Display())
        if others:
            raise UserError(f"'{others[0]}' is no word for export: adopt.KEY=VALUE describes a network.")
    if native:
        model.save_native(out)
        source = model.network.config.backbone
        tell(f"{out}: {len(model.classes)} channels, for code of {source}")
        tell(f"Next, in Python: {NATIVE[source.partition(':')[0]].format(folder=str(out))}")
        return
    report = model.export(out, output, input, smaller, images, size)
    count = sum(parameter.numel() for parameter in model.network.parameters())
    tell(f"{out}: {len(model.classes)} channels, {count:,} parameters")
    for line in report.lines() if report is not None else ():
        tell(line)
    if ending in IN_PYTHON:
        tell(f"Next, in Python: {IN_PYTHON[ending]}({str(out)!r})")
    elif size is not None or output in ("mask", "probabilities"):
        tell(f"Next, in Python: import onnxruntime; onnxruntime.InferenceSession({str(out)!r})")
    else:
        tell_next(f"predict {quote(out)} photos/ --out predicted", "masks of new images")
