"""Packages that not everybody has: those of the project's extras."""

from __future__ import annotations

import importlib
from typing import Any

from segue.core.errors import UserError


def needed(module: str, extra: str, what: str) -> Any:
    """A module of an extra; where it is not installed, an error with what needs it and the command to type.

    Examples:
        >>> needed("json", "none", "This line").dumps([1])
        '[1]'
    """
    try:
        importlib.import_module(module.split(".")[0])
        return importlib.import_module(module)
    except ImportError as error:
        raise missing(module, extra, what) from error


def missing(module: str, extra: str, what: str) -> UserError:
    return UserError(f"{what} needs the package {module.split('.')[0]}: pip install 'segue[{extra}]'.")
