"""A module of which the quick statements run now, and the rest when something of it is asked for.

Importing torch takes seconds. A method's file declares its settings and values beside code that needs torch:
`import_quickly` runs what needs only the standard library, pydantic, `segue.core` and the module's own
`config`, so that a recipe is made at once. It is the same module that others import: its classes exist once.
"""

from __future__ import annotations
import __future__

import ast
import copy
import importlib.util
import sys
import threading
from collections.abc import Container
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

QUICK = ("pydantic", "segue.core")
"""packages, besides the standard library, whose import takes no time"""


class DeferredModule(ModuleType):
    """A module with statements that wait until one of the names that they define is asked for."""

    def prepare(self, tree: ast.Module) -> None:
        """Run the quick statements; those that need a name that is not there yet wait."""
        self.__doc__ = ast.get_docstring(tree, clean=False)
        self._lock, self._flags = threading.RLock(), 0
        self._waiting: list[ast.stmt] = []
        for statement in tree.body:
            if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
                for alias in statement.names:
                    self._flags |= getattr(__future__, alias.name).compiler_flag
            elif not self._is_quick(statement) or not self._try(statement):
                self._waiting.append(statement)

    def _is_quick(self, statement: ast.stmt) -> bool:
        if isinstance(statement, ast.Import):
            return all(self._is_quick_module(alias.name) for alias in statement.names)
        if isinstance(statement, ast.ImportFrom):
            return statement.level == 0 and self._is_quick_module(statement.module or "")
        return True

    def _is_quick_module(self, name: str) -> bool:
        if name.split(".")[0] in sys.stdlib_module_names or name == f"{self.__name__}.config":
            return True
        return any(name == quick or name.startswith(f"{quick}.") for quick in QUICK)

    def _try(self, statement: ast.stmt) -> bool:
        try:
            self._run([statement], self.__dict__)
        except NameError:
            return False
        return True

    def _run(self, statements: list[ast.stmt], names: dict[str, Any]) -> None:
        tree = ast.Module(statements, [])
        exec(compile(tree, str(self.__file__), "exec", self._flags, dont_inherit=True), names)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python itself asks for some of them
            raise AttributeError(f"module '{self.__name__}' has no attribute '{name}'")
        with self._lock:
            if isinstance(self, DeferredModule):  # no other thread was here first
                self.finish()
        return getattr(self, name)

    def finish(self) -> None:
        """Run what waits; from then on it is a module like any other."""
        try:
            self._run(self._waiting, self.__dict__)
        except BaseException:
            sys.modules.pop(self.__name__, None)  # as for any import that fails
            raise
        self.__class__ = ModuleType  # type: ignore[assignment]  # the base: what waits is done

    def declared(self, word: str, base: type) -> type | None:
        """The class that the module exports under a word, reduced to the names that `base` annotates.

        None if they cannot be had without the rest of the module.
        """
        classes = {each.name: each for each in self._waiting if isinstance(each, ast.ClassDef)}
        exports = [
            each.value for each in self._waiting if isinstance(each, ast.Assign) and _assigns(each, {word})
        ]
        if not exports or not isinstance(exports[-1], ast.Name) or exports[-1].id not in classes:
            return None
        reduced = copy.copy(classes[exports[-1].id])
        body = [each for each in reduced.body if _assigns(each, base.__annotations__)]
        reduced.body, reduced.decorator_list = body or [ast.Pass()], []
        reduced.bases, reduced.keywords = [ast.Name("_Base", ast.Load())], []
        names = {**self.__dict__, "_Base": base}
        try:
            self._run([ast.fix_missing_locations(reduced)], names)
        except NameError:
            return None
        return names[reduced.name]


def _assigns(statement: ast.stmt, names: Container[str]) -> bool:
    """Whether a statement gives one of these names a value."""
    return isinstance(statement, ast.Assign) and any(
        isinstance(target, ast.Name) and target.id in names for target in statement.targets
    )


class _QuickLoader(SourceFileLoader):
    """Loads a file as a `DeferredModule`."""

    def create_module(self, spec: ModuleSpec) -> DeferredModule:
        return DeferredModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        assert isinstance(module, DeferredModule)
        module.prepare(ast.parse(Path(self.path).read_bytes(), self.path))


def import_quickly(name: str) -> ModuleType:
    """The module of this name: as it is if it was imported already, else with its quick statements run."""
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.origin is not None
    spec.loader = _QuickLoader(name, spec.origin)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    package, _, own = name.rpartition(".")
    setattr(sys.modules[package], own, module)
    return module
