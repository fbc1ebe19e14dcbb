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
from collections.abc import Container
from pathlib import Path
from typing import Any, get_type_hints

from segue.core.declaration import Declaration
from segue.core.deferred import DeferredModule, import_quickly
from segue.core.errors import UserError, suggest
from segue.core.ordinary import user_path

KINDS = {"method": ("segue.methods", "METHOD"), "dataset": ("segue.data.datasets", "DATASET")}
_files: dict[Path, tuple[bytes, Any]] = {}
"""imported files of one's own: content and module"""


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
    else:
        check_name(kind, name)
        module = importlib.import_module(f"{package}.{name}")
    if not hasattr(module, word):
        raise UserError(
            f"{module.__file__} does not say which class it exports: add a line '{word} = YourClass'."
        )
    return getattr(module, word)


def declared(name: str) -> type[Declaration]:
    """What the method of this name declares: its class, or that alone where torch would have to be imported.

    A file of one's own is imported.
    """
    if name.endswith(".py") or "torch" in sys.modules:
        return find("method", name)
    check_name("method", name)
    package, word = KINDS["method"]
    module = import_quickly(f"{package}.{name}")
    found = module.declared(word, Declaration) if isinstance(module, DeferredModule) else None
    return found if found is not None and _is_complete(found) else find("method", name)


def was_run(name: str) -> bool:
    """Whether a file of one's own has been imported already, because somebody named it."""
    return user_path(name).resolve() in _files


def _is_complete(found: type[Declaration]) -> bool:
    """Whether all that the types of its settings name was there without torch."""
    try:
        get_type_hints(found.Config)
    except (AttributeError, NameError):
        return False
    return True


def check_name(kind: str, name: str) -> None:
    """Refuse a name that no plug-in of the package has."""
    if name not in names(kind):
        raise UserError(f"There is no {kind} '{name}'.{suggest(name, names(kind))}")


def _import_file(path: Path) -> Any:
    """The module in a file; the same one as long as the file is the same, so that its classes are."""
    path = user_path(path)
    if not path.is_file():
        raise UserError(f"There is no file {path}.")
    path = path.resolve()
    module_name = f"segue_plugin_{path.stem}"
    content = path.read_bytes()
    stored = _files.get(path)
    if stored is None or stored[0] != content:
        stored = _files[path] = content, _execute_file(path, module_name)
    module = stored[1]
    sys.modules[module_name] = module  # a file of the same name may have come between
    return module


def _execute_file(path: Path, module_name: str) -> Any:
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # dataclasses look their module up here
    try:
        spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a file may end the interpreter, or skip itself as a test does
        places = _places(error, {path})
        where = f" (line {places[-1][1]})" if places else ""
        raise UserError(f"{path} cannot be imported{where}: {type(error).__name__}: {error}") from error
    return module


def own_error(error: BaseException) -> UserError | None:
    """What to say of an error that came through a file of one's own, with its line; None: it did not."""
    if places := _places(error, _files):
        return UserError("{}, line {}: {}: {}".format(*places[-1], type(error).__name__, error))
    return None


def _places(error: BaseException, files: Container[Path]) -> list[tuple[str, int]]:
    """The lines of these files that an error came through, and the one that Python could not read."""
    frames = [(frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError):
        frames.append((error.filename or "", error.lineno or 0))
    return [frame for frame in frames if Path(frame[0]) in files]
