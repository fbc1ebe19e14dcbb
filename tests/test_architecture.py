"""The house plan: imports point down only, files stay small and have telling names."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import segue

SOURCE = Path(segue.__file__).parent

LOWEST = {"core"}
BELOW_METHODS = LOWEST | {"losses", "models", "data"}
BELOW_ENGINE = BELOW_METHODS | {"methods"}
BELOW_DEPLOY = BELOW_ENGINE | {"engine", "report"}
BELOW_STUDIES = BELOW_DEPLOY | {"deploy", "plan"}
MAY_IMPORT = {
    "core": set(),
    "losses": set(),
    "models": LOWEST,
    "data": LOWEST,
    "methods": BELOW_METHODS,
    "engine": BELOW_ENGINE,
    "report": BELOW_ENGINE,
    "deploy": BELOW_DEPLOY,
    "plan": BELOW_DEPLOY,
    "studies": BELOW_STUDIES,
    "testing": BELOW_STUDIES,
    "cli": BELOW_STUDIES | {"studies", "testing"},
    "__main__": {"cli"},
}

NO_TORCH = {"core", "report"}
TORCH = {"torch", "torchvision", "timm"}
NO_NAMES = {"utils.py", "helpers.py", "common.py", "misc.py"}
MOST_LINES = 400


def imports(path: Path, root: Path) -> Iterator[str]:
    """Dotted names of everything that a file imports, at any depth; `from a import b` is a.b."""
    package = ["segue", *path.relative_to(root).parent.parts]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = [*above, *([node.module] if node.module else [])]
            yield from (".".join([*module, alias.name]) for alias in node.names)


def import_complaint(part: str, name: str) -> str | None:
    """Why a file of this part of the package may not import this name."""
    top, *rest = name.split(".")
    if top == "segue":
        target = rest[0] if rest else ""
        if target in {"", "__version__", part}:
            return None
        if target not in MAY_IMPORT[part]:
            return f"{part} may not import {name}"
        if part == "engine" and target == "methods" and rest[1:2] != ["base"]:
            return f"engine knows methods.base only, not {name}"
    elif part in NO_TORCH and top in TORCH:
        return f"{part} may not import {name}"
    elif part == "losses" and top != "torch" and top not in sys.stdlib_module_names:
        return f"losses import torch only, not {name}"
    return None


def complaints(root: Path) -> list[str]:
    found = []
    for path in sorted(root.rglob("*.py")):
        file = path.relative_to(root)
        part = file.parts[0].removesuffix(".py")
        if file.name in NO_NAMES:
            found.append(f"{file}: the name says nothing")
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > MOST_LINES:
            found.append(f"{file}: {lines} lines")
        if part != "__init__" and part not in MAY_IMPORT:
            found.append(f"{file}: '{part}' has no place in the plan")
        elif part != "__init__":
            reasons = (import_complaint(part, name) for name in imports(path, root))
            found += [f"{file}: {reason}" for reason in reasons if reason]
    return found


def test_source_follows_the_plan():
    assert (SOURCE / "core" / "scenario.py").is_file()
    assert complaints(SOURCE) == []


@pytest.mark.parametrize(
    ("file", "text", "good"),
    [
        ("core/a.py", "import numpy", True),
        ("core/a.py", "import torch", False),
        ("core/a.py", "def f():\n    from torch.nn import Module", False),
        ("core/a.py", "from segue.data import index", False),
        ("core/a.py", "from segue import __version__", True),
        ("report/a.py", "from segue.core.records import read_run", True),
        ("report/a.py", "import timm.models", False),
        ("report/a.py", "from segue.engine import run", False),
        ("engine/a.py", "from segue.methods.base import Method", True),
        ("engine/a.py", "from segue.methods import base", True),
        ("engine/a.py", "from segue.methods.mib import MiB", False),
        ("engine/a.py", "from segue.methods import mib", False),
        ("engine/a.py", "import segue.methods", False),
        ("engine/a.py", "from segue.deploy import serve", False),
        ("engine/a.py", "from segue.report import tables", False),
        ("deploy/a.py", "from segue.engine import run", True),
        ("deploy/a.py", "from segue.plan import footprint", False),
        ("plan/a.py", "from segue.studies import compare", False),
        ("studies/a.py", "from segue.plan import footprint", True),
        ("studies/a.py", "from segue.cli import main", False),
        ("deploy/a.py", "from segue.models import segmenter", True),
        ("losses/a.py", "import math\nimport torch.nn.functional as F", True),
        ("losses/a.py", "import numpy", False),
        ("losses/a.py", "from ..models import heads", False),
        ("losses/a.py", "from . import pixel", True),
        ("data/datasets/a.py", "from ..transforms import crop\nfrom .base import Sample", True),
        ("data/datasets/a.py", "from ...models import heads", False),
        ("models/a.py", "from segue import data", False),
        ("methods/a.py", "from segue.losses import pixel", True),
        ("methods/a.py", "from segue.engine import run", False),
        ("testing.py", "from segue.engine import run", True),
        ("testing.py", "from segue.studies import compare", False),
        ("cli/train.py", "from segue.deploy import serve\nfrom segue.testing import check_method", True),
        ("__main__.py", "from segue.cli import main", True),
        ("data/utils.py", "", False),
        ("tools/a.py", "", False),
        ("core/a.py", "x = 1\n" * 400, True),
        ("core/a.py", "x = 1\n" * 401, False),
    ],
)
def test_the_check_sees_what_breaks_the_plan(tmp_path, file, text, good):
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    assert (complaints(tmp_path) == []) is good


def test_pictures_are_opened_by_named_formats_only():
    """PIL guesses otherwise, and some of its decoders start programs."""
    calls = []
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Image.open":
                calls.append((path.name, {keyword.arg for keyword in node.keywords}))
    assert calls and all("formats" in named for _, named in calls), calls


@pytest.mark.parametrize("part", sorted(NO_TORCH))
def test_part_loads_no_torch(part):
    paths = [path.relative_to(SOURCE).with_suffix("") for path in sorted((SOURCE / part).rglob("*.py"))]
    modules = [".".join(["segue", *path.parts]).removesuffix(".__init__") for path in paths]
    if part == "core":
        expected = {f"segue.core.{word}" for word in ("scenario", "records", "config", "metrics", "plugins")}
        assert expected <= set(modules)
    code = f"import sys, {', '.join(modules)}; print(sorted({TORCH!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
