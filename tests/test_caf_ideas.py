"""The page of what was tried with CAF without a memory says what the stored confusion matrices say."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results" / "voc256-caf-ideas.md"
TRIES = json.loads((ROOT / "results" / "voc256" / "caf-ideas" / "tries.json").read_text())["tries"]


def figures(confusion: list[list[int]]) -> list[float]:
    """Old, new, all, hIoU, background, and the share of background that is taken for new classes."""
    counts = np.array(confusion, float)
    hits = counts.diagonal()
    iou = 100 * hits / np.maximum(counts.sum(0) + counts.sum(1) - hits, 1)
    old, new = iou[1:16].mean(), iou[16:].mean()
    lost = 100 * counts[0, 16:].sum() / counts[0].sum()
    return [old, new, iou[1:].mean(), 2 * old * new / (old + new), iou[0], lost]


def test_the_page_has_a_row_for_each_try() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith(("| mib: ", "| caf: "))]
    assert len(rows) == len(TRIES)


@pytest.mark.parametrize("place", range(len(TRIES)))
def test_rows_are_those_of_the_matrices(place: int) -> None:
    tried = TRIES[place]
    *most, lost = figures(tried["confusion"])
    cells = [f"{tried['method']}: {tried['what']}", str(tried["order_seed"])]
    row = " | ".join([*cells, *(f"{value:.1f}" for value in most), f"{lost:.0f}"])
    assert f"| {row} |" in PAGE.read_text()
