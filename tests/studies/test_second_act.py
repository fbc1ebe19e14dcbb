"""The demonstration's second act alone: old images are gone, one class more, a verdict."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

import segue
from segue.core.progress import Display
from segue.data.datasets.scenes import MAX_CLASSES, Config
from segue.engine.recipe import resolve
from segue.studies import second_act as act_module
from segue.studies.second_act import second_act

WORDS = ["data.train=40", "data.test=12", "data.size=32", "train.crop=32", "train.epochs=1", "eval.samples=0"]


@pytest.fixture(autouse=True)
def few_images(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, number in (("TRAIN", 16), ("HELD_OUT", 4), ("CHECKED", 8)):
        monkeypatch.setattr(act_module, name, number)


def test_one_more_class_without_the_old_images(tmp_path: Path):
    console = Console(file=io.StringIO(), width=80)
    recipe = resolve("caf", "scenes", "9", overrides=WORDS)
    segue.run(recipe, tmp_path / "caf", display=Display(quiet=True))
    mine = tmp_path / "old-images" / "mine.txt"
    mine.parent.mkdir()
    mine.write_text("kept")

    page = second_act(tmp_path, tmp_path / "caf", recipe.data, True, "cpu", Display(console), console)

    said = console.file.getvalue()
    assert "dotted disc (new)" in said and "deleted" in said and "Verdict: " in said
    assert list((tmp_path / "old-images").iterdir()) == [mine], (
        "what was written is gone, what was there stays"
    )
    grown = segue.load(tmp_path / "grown")
    assert grown.classes == (*segue.load(tmp_path / "model").classes, "dotted disc")
    verdict = json.loads((tmp_path / "grown-run" / "verdict.json").read_text())
    assert verdict["labelled"] and verdict["new"].keys() == {"dotted disc"}
    assert page is not None and page.read_text().count("data:image/png") == 4 * (8 + 4)
    trained = segue.read_run(tmp_path / "grown-run").steps[-1]
    assert trained.images["train"] == 16 and trained.images["test"] == 4

    written = (tmp_path / "grown-run" / "steps" / "1.json").stat().st_mtime_ns
    second_act(tmp_path, tmp_path / "caf", recipe.data, False, "cpu", Display(quiet=True), console)
    assert written == (tmp_path / "grown-run" / "steps" / "1.json").stat().st_mtime_ns, "it is done already"


def test_without_a_class_that_is_left_there_is_no_second_act(tmp_path: Path):
    console = Console(file=io.StringIO())
    data = Config(classes=MAX_CLASSES)
    assert second_act(tmp_path, tmp_path / "caf", data, True, "cpu", Display(console), console) is None
    assert str(MAX_CLASSES) in console.file.getvalue() and not list(tmp_path.iterdir())
