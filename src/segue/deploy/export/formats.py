"""The formats: a traced module as the bytes of an ONNX, TorchScript or torch.export file."""

from __future__ import annotations

import io
import json
import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from segue.core.errors import UserError
from segue.deploy.export import seal
from segue.deploy.export.endings import ONNX, TORCHSCRIPT
from segue.deploy.export.extra import ONE_SIZE, onnx_package, reason_of
from segue.deploy.export.module import ImageToLogits
from segue.deploy.export.outputs import IMAGE, LOGITS, MAP, MASK, PROBABILITIES

ABOUT = "segue.json"
"""name of the metadata inside TorchScript and torch.export files"""
Axes = Mapping[int, str]
AXES: Axes = {0: "batch", 2: "height", 3: "width"}
"""dynamic sides of the image"""
MOST_BYTES = 2**31 - 1
"""largest ONNX file: protobuf has no more"""


def encode(
    module: ImageToLogits, image: Tensor, ending: str, about: Mapping[str, str], fixed: bool = False
) -> tuple[bytes, str]:
    """A file's content and a remark, or an empty one; `fixed`: for images of that size alone."""
    axes = {0: AXES[0]} if fixed else AXES
    with _quiet(), torch.no_grad():
        if ending == ONNX:
            return _onnx(module, image, about, axes)
        if ending == TORCHSCRIPT:
            return _torchscript(module, image, about), ""
        return _torch_export(module, image, about, axes), ""


def _torchscript(module: ImageToLogits, image: Tensor, about: Mapping[str, str]) -> bytes:
    file = io.BytesIO()
    traced = torch.jit.trace(module, (image,), check_trace=False)
    torch.jit.save(traced, file, _extra_files={ABOUT: json.dumps(about)})
    return file.getvalue()


def _torch_export(module: ImageToLogits, image: Tensor, about: Mapping[str, str], axes: Axes) -> bytes:
    file = io.BytesIO()
    try:
        program = torch.export.export(module, (image,), dynamic_shapes=_dynamic(axes))
    except Exception as error:  # torch has no list of what it raises for networks that it cannot follow
        raise UserError(f"torch.export cannot follow this network: {reason_of(error)}. {ONE_SIZE}") from error
    torch.export.save(program, file, extra_files={ABOUT: json.dumps(about)})
    return file.getvalue()


def _onnx(module: ImageToLogits, image: Tensor, about: Mapping[str, str], axes: Axes) -> tuple[bytes, str]:
    onnx = onnx_package("onnx")
    onnx_package("onnxscript")
    remark = ""
    try:
        model = _by_dynamo(module, image, axes)
    except Exception as error:  # whatever torch may raise: the older exporter follows other networks
        remark = f"torch's older exporter wrote the file; the newer one failed: {reason_of(error)}"
        try:
            model = onnx.load_from_string(_by_tracing(module, image, axes))
        except Exception as second:
            raise UserError(
                f"torch cannot write this network as ONNX: {reason_of(second)}. {ONE_SIZE}"
            ) from second
    _name_axes(model, axes)
    onnx.helper.set_model_props(model, {**about, seal.KEY: seal.OPEN})
    if (size := model.ByteSize()) > MOST_BYTES:
        raise UserError(f"An ONNX file holds 2 GiB; this model needs {size / 2**30:.1f}. Write .pt2 instead.")
    return model.SerializeToString(), remark


def _by_dynamo(module: ImageToLogits, image: Tensor, axes: Axes) -> Any:
    names = list(module.names)
    program = torch.onnx.export(
        module,
        (image,),
        input_names=[IMAGE],
        output_names=names,
        dynamic_shapes=_dynamic(axes),
        dynamo=True,
        external_data=False,
        verbose=False,
    )
    assert program is not None  # there is no file to write to
    return program.model_proto


def _by_tracing(module: ImageToLogits, image: Tensor, axes: Axes) -> bytes:
    file = io.BytesIO()
    names = {name: axes for name in (IMAGE, LOGITS, PROBABILITIES)}
    names[MASK] = {max(0, axis - 1): word for axis, word in axes.items()}  # it has no channels
    names[MAP] = {axis: f"map_{word}" if axis else word for axis, word in axes.items()}
    torch.onnx.export(
        module,
        (image,),
        file,  # type: ignore[arg-type]  # it takes files that are open, too
        input_names=[IMAGE],
        output_names=list(module.names),
        dynamic_axes={name: names[name] for name in (IMAGE, *module.names)},
        dynamo=False,
    )
    return file.getvalue()


def _dynamic(axes: Axes) -> dict[str, dict[int, Any]]:
    return {IMAGE: {axis: torch.export.Dim.DYNAMIC for axis in axes}}


def _name_axes(model: Any, axes: Axes) -> None:
    """The dynamic sides by words: torch calls them s40, s73 and the like."""
    sides = [side.dim_param for side in model.graph.input[0].type.tensor_type.shape.dim]
    names = {sides[axis]: name for axis, name in axes.items()}
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        for side in value.type.tensor_type.shape.dim:
            if side.dim_param:
                side.dim_param = re.sub(r"\w+", lambda word: names.get(word[0], word[0]), side.dim_param)


@contextmanager
def _quiet() -> Iterator[None]:
    """No word of torch on what it will drop one day, or on how it exports."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
