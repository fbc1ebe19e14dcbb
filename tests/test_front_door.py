"""The front door: `import segue` is quick, its names are what they say, and their examples work."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from own_folder import write_pair
from PIL import Image

import segue
from segue.data.datasets import scenes
from segue.deploy.load import load_run

SOURCE = Path(segue.__file__)
NAMES = [name for name in segue.__all__ if name != "__version__"]
HEAVY = {"torch", "torchvision", "timm", "numpy", "pydantic", "rich"}
MOST_SECONDS = 0.3


def in_a_new_process(*lines: str) -> str:
    command = [sys.executable, "-c", "\n".join(lines)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_import_is_quick_and_loads_nothing_heavy():
    seconds, loaded = in_a_new_process(
        "import sys, time",
        "began = time.process_time()",
        "import segue",
        f"print(time.process_time() - began, sorted({HEAVY!r} & set(sys.modules)))",
    ).split(" ", 1)
    assert loaded == "[]" and float(seconds) < MOST_SECONDS


def test_scenarios_and_records_need_no_torch():
    names = "segue.ClassTable, segue.make_scenario, segue.read_run, segue.UserError, segue.resolve"
    assert in_a_new_process("import segue, sys", names, "print('torch' in sys.modules)") == "False"


def test_type_checkers_and_python_find_the_same_names():
    tree = ast.parse(SOURCE.read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imported = {
        alias.name: statement.module
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    assert imported == segue._HOMES and sorted(imported) == NAMES
    assert (SOURCE.parent / "py.typed").is_file()
    for name, home in imported.items():
        assert getattr(segue, name) is getattr(importlib.import_module(home), name)
    assert set(segue.__all__) <= set(dir(segue))


def test_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        segue.lode  # noqa: B018


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory, finished: Any) -> Path:
    """What the examples work with: a run, its model, a photo, and images of a new class."""
    home = tmp_path_factory.mktemp("desk")
    shutil.copytree(finished("caf"), home / "runs" / "first")
    model = load_run(home / "runs" / "first", device="cpu")
    model.save(home / "model.safetensors")
    model.save(home / "model")
    for number in range(8):
        write_pair(home / f"new-images/images/{number}.png", home / f"new-images/masks/{number}.png", [0, 1])
    (home / "new-images" / "classes.txt").write_text("background\nbird\n")
    photo = scenes.Scenes(scenes.Config(size=48), "test").read(0).image
    Image.fromarray(photo).save(home / "photo.jpg")
    return home


def examples(name: str) -> list[doctest.Example]:
    """Those of a name and, if it is a class, of its methods."""
    thing = segue if name == "segue" else getattr(segue, name)
    found = [inspect.getdoc(thing) or ""]
    if inspect.isclass(thing):
        own = (value for key, value in vars(thing).items() if not key.startswith("_"))
        found += [inspect.getdoc(value) or "" for value in own if callable(getattr(value, "__func__", value))]
    parser = doctest.DocTestParser()
    return [example for text in found for example in parser.get_examples(text)]


@pytest.mark.parametrize("name", ["segue", *NAMES])
def test_public_name_has_a_docstring_with_an_example_that_works(name, desk, monkeypatch):
    monkeypatch.chdir(desk)
    shutil.rmtree("runs/second", ignore_errors=True)
    found = examples(name)
    assert found, f"{name} has no example"
    test = doctest.DocTest(found, {}, name, None, 0, None)
    report: list[str] = []
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    doctest.DocTestRunner(optionflags=flags, verbose=False).run(test, out=report.append)
    assert not report, "".join(report)
