"""Files of weights from elsewhere: read without running anything, every tensor a plain one."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from segue.core.errors import UserError, reason
from segue.core.ordinary import check_ordinary

READ_BYTES = 2**20
UNPACKED_BYTES = 2**28
"""most that compressed entries may hold: torch compresses the code of TorchScript alone"""
BAD_ARCHIVE = (zipfile.BadZipFile, zlib.error, struct.error, ValueError, EOFError, OSError, RuntimeError)
"""errors of a zip archive that is none, or is damaged"""


def open_weights(path: Path) -> Any:
    """The content of a safetensors file, or of a .pth, .pt, .bin or .ckpt with weights alone."""
    if not path.exists() or path.is_dir():
        raise UserError(f"The weights file {path} does not exist.")
    try:
        check_ordinary(path)
        if path.suffix == ".safetensors":
            return load_file(path)
        refuse_damaged(path, path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except UserError:
        raise
    except OSError as error:
        raise UserError(f"{path} cannot be read: {reason(error)}.") from error
    except (SafetensorError, EOFError) as error:
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


def refuse_damaged(archive: Path | IO[bytes], name: str | Path) -> None:
    """Refuse a file of torch.save or torch.jit whose entries do not match their checksums.

    torch does not look at them. Where no entry matches they were left out on purpose, as torch allows.
    """
    if not zipfile.is_zipfile(archive):  # as torch wrote before 1.6
        return
    try:
        with zipfile.ZipFile(archive) as entries:
            squeezed = (each for each in entries.infolist() if each.compress_type != zipfile.ZIP_STORED)
            found = None
            if sum(each.file_size for each in squeezed) <= UNPACKED_BYTES:
                found = {entry.filename: _is_whole(entries, entry) for entry in entries.infolist()}
    except BAD_ARCHIVE:  # torch, which reads it in its own way, may say more
        return
    if found is None:
        raise UserError(f"{name} would unpack to far more than torch ever packs: it is not opened.")
    damaged = [entry for entry, whole in found.items() if not whole]
    if 0 < len(damaged) < len(found):
        raise UserError(f"{name} is damaged: {damaged[0]} in it does not match its checksum.")


def _is_whole(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bool:
    try:
        with archive.open(entry) as content:
            while content.read(READ_BYTES):
                pass
    except BAD_ARCHIVE:
        return False
    return True


def first_nan(state: Mapping[str, Tensor]) -> str | None:
    """The name of the first tensor that holds NaN, if one does: a damaged file, or training that failed."""
    return next(
        (name for name, value in state.items() if torch.is_tensor(value) and value.isnan().any()), None
    )


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
