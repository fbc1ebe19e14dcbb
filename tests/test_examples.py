"""The examples do what they say: a loop of one's own, and a notebook whose stored pictures are its own."""

from __future__ import annotations

import importlib.util
import json
import re
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

EXAMPLES = Path(__file__).parents[1] / "examples"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_loop_learns_one_class_after_the_other() -> None:
    torch.manual_seed(0)
    scores = example("loop").train(epochs=1, crop=32, classes=3, size=32, train=40, test=10)
    assert [len(step) for step in scores] == [3, 4] and "barred triangle" in scores[1]
    assert scores[1]["background"] > 0.5


def test_the_network_of_the_loop_says_the_same_after_growing() -> None:
    network = example("loop").Network(8).eval()
    network.grow(3)
    torch.nn.init.normal_(network.head.weight)
    images = torch.randint(256, (2, 3, 32, 32))
    before = network(images)
    network.grow(5)
    after = network(images)
    torch.testing.assert_close(after[:, :3], before)
    torch.testing.assert_close(after[:, 3:], before[:, :1].expand(-1, 2, -1, -1))


def test_the_notebook_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a tiny size, in a kernel of its own."""
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("SEGUE_NOTEBOOK_IMAGES", "24")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    book = nbformat.read(EXAMPLES / "extend.ipynb", as_version=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the kernel's own start
        nbclient.NotebookClient(book, timeout=60, kernel_name="python3").execute()  # raises where a cell does
    printed = "".join(output.get("text", "") for cell in book.cells for output in cell.get("outputs", ()))
    assert "barred triangle: IoU" in printed and len(pictures(book)) == 2


def test_the_stored_notebook_shows_pictures_and_no_place() -> None:
    path = EXAMPLES / "extend.ipynb"
    book = json.loads(path.read_text(encoding="utf-8"))
    assert len(pictures(book)) == 2 and path.stat().st_size < 300_000
    outputs = [output for cell in book["cells"] for output in cell.get("outputs", ())]
    assert all(output["output_type"] != "error" for output in outputs)
    texts = [output.get("text") or output["data"].get("text/plain", "") for output in outputs]
    told = "".join("".join(text) for text in texts)
    assert "safe to deploy" in told and not re.search(r"/(tmp|home|Users|work|root)\b|[A-Z]:\\", told)


def pictures(book: dict[str, Any]) -> list[str]:
    """Pictures among the outputs of a notebook."""
    outputs = (output for cell in book["cells"] for output in cell.get("outputs", ()))
    return [output["data"]["image/png"] for output in outputs if "image/png" in output.get("data", {})]
