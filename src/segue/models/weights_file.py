"""Files of weights from elsewhere: read without running anything, every tensor a plain one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from segue.core.errors import UserError
from segue.core.ordinary import check_ordinary


def open_weights(path: Path) -> Any:
    """The content of a safetensors file, or of a .pth, .pt, .bin or .ckpt with weights alone."""
    if not path.exists() or path.is_dir():
        raise UserError(f"The weights file {path} does not exist.")
    try:
        check_ordinary(path)
        if path.suffix == ".safetensors":
            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (SafetensorError, OSError, EOFError) as error:
        raise UserError(f"{path} is not a readable state dict: {_reason(error)}.") from error
    except (RuntimeError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise UserError(
            f"{path} is not a readable state dict, or it is damaged: {_reason(error)}."
        ) from error
    except Exception as error:  # pickle.UnpicklingError and others: code, or objects of some library
        raise UserError(
            f"{path} holds more than weights, which could run code, and is not opened. Where it was made,"
            " write weights alone: safetensors.torch.save_file(model.state_dict(), 'weights.safetensors')."
        ) from error
    _check_tensors(state, path)
    return state


def _check_tensors(node: Any, path: Path, name: str = "") -> None:
    """Refuse tensors without numbers of their own, or laid out as networks do not have them."""
    if isinstance(node, dict):
        for key, value in node.items():
            _check_tensors(value, path, f"{name}.{key}".lstrip("."))
    elif isinstance(node, Tensor):
        if node.is_meta:
            raise UserError(f"{path}: '{name}' has no numbers (a tensor of the device meta).")
        if node.layout != torch.strided or node.is_quantized or node.is_nested:
            raise UserError(
                f"{path}: '{name}' is no plain tensor ({node.layout}): write it as one (to_dense)."
            )


def _reason(error: Exception) -> str:
    """The first sentence: PyTorch goes on with advice to its own users."""
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0].partition(". ")[0].rstrip(".")
