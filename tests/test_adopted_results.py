"""The page about adopted networks says what the stored confusion matrices and tries say."""

import json
from pathlib import Path

import numpy as np
import pytest
from stored_studies import ROOT

from segue.core.metrics import iou

FOLDER = ROOT / "results" / "adopted"
STUDIES = sorted(path for path in FOLDER.glob("*.json") if path.stem != "tries")
PAGE = (ROOT / "docs" / "results" / "adopted.md").read_text(encoding="utf-8")


def row(name: str, run: dict, known: int) -> str:
    """A line of the page's tables: old classes, new classes, minutes on the clock and of CPU time."""
    old = np.nanmean(iou(np.array(run["old_test"]))[1:known])
    if "new_test" not in run:
        return f"| {name} | {100 * old:.1f} |"
    new = iou(np.array(run["new_test"]))[known:]
    scores = " / ".join(f"{100 * score:.1f}" for score in new)
    minutes = " | ".join(f"{run[key] / 60:.1f}" for key in ("seconds", "cpu_seconds"))
    return f"| {name} | {100 * old:.1f} | {scores} | {100 * new.mean():.1f} | {minutes} |"


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_the_page_says_what_was_measured(path: Path) -> None:
    study = json.loads(path.read_text(encoding="utf-8"))
    known = len(study["before"]["old_test"])
    rows = [row(name, run, known) for name, run in {"before": study["before"], **study["runs"]}.items()]
    assert len(rows) > 1
    assert not [line for line in rows if line not in PAGE]


def test_the_page_tells_what_more_images_bring() -> None:
    run = json.loads((FOLDER / "ground.json").read_text(encoding="utf-8"))["all_images"]
    old, new = (iou(np.array(run[key])) for key in ("old_test", "new_test"))
    scores = " / ".join(f"{100 * score:.1f}" for score in new[21:])
    assert f"old {100 * np.nanmean(old[1:21]):.1f}, new {scores}, mean {100 * new[21:].mean():.1f}" in PAGE


def test_the_page_lists_every_try() -> None:
    tries = json.loads((FOLDER / "tries.json").read_text(encoding="utf-8"))
    for number, each in enumerate(tries, 1):
        scores = " / ".join(f"{score:.1f}" for score in each["new"])
        line = f"| {number} | {each['words']} | {scores} | {np.mean(each['new']):.1f} | {each['kept']:.1f} |"
        assert line in PAGE


def test_there_are_studies() -> None:
    assert len(STUDIES) == 4
