"""Packages of the extra `onnx`, which not everybody has."""

from __future__ import annotations

import importlib
from typing import Any

from segue.core.errors import UserError


def onnx_package(name: str) -> Any:
    """A module of the extra, or the command that installs it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(
            f"ONNX files need the package {name.split('.')[0]}: pip install 'segue[onnx]'."
        ) from error
