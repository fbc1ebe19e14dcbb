"""A plug-in is a file: its name is its path. `segue/methods/mib.py` is the method `mib`, and no list names
it.

The folder of a kind holds one module per plug-in; the module exports it under the kind's word (`METHOD =
MiB`, `DATASET = Voc`). `base` and names with a leading underscore are what several plug-ins have in common.
A method may also live outside the package: its name is then the path of its .py file.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
import traceback
from pathlib import Path
from typing import Any

from segue.core.errors import UserError, suggest

KINDS = {"method": ("segue.methods", "METHOD"), "dataset": ("segue.data.datasets", "DATASET")}


def names(kind: str) -> list[str]:
    """The plug-ins of a kind that come with the package."""
    package = importlib.import_module(KINDS[kind][0])
    found = (module.name for module in pkgutil.iter_modules(package.__path__))
    return sorted(name for name in found if name != "base" and not name.startswith("_"))


def find(kind: str, name: str) -> Any:
    """The plug-in of this name, imported."""
    package, word = KINDS[kind]
    if name.endswith(".py"):
        module = _import_file(Path(name))
    elif name in names(kind):
        module = importlib.import_module(f"{package}.{name}")
    else:
        raise UserError(f"There is no {kind} '{name}'.{suggest(name, names(kind))}")
    if not hasattr(module, word):
        raise UserError(
            f"{module.__file__} does not say which class it exports: add a line '{word} = YourClass'."
        )
    return getattr(module, word)


def _import_file(path: Path) -> Any:
    path = path.expanduser().resolve()
    if not path.is_file():
        raise UserError(f"There is no file {path}.")
    module_name = f"segue_plugin_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # dataclasses look their module up here
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        line = traceback.extract_tb(error.__traceback__)[-1].lineno
        raise UserError(
            f"{path} cannot be imported (line {line}): {type(error).__name__}: {error}"
        ) from error
    return module
