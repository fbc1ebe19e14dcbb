"""The page of what was tried with CAF without a memory says what the stored records say."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from segue.core.image_counts import ImageCounts, read_counts
from segue.core.packed import packed_places
from segue.core.records import read_run
from segue.report.paired import GROUPS, differences

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results" / "voc256-caf-ideas.md"
TRIES = json.loads((ROOT / "results" / "voc256" / "caf-ideas" / "tries.json").read_text())["tries"]
RUNS = {place.name: place for place in packed_places(ROOT / "results/voc256/caf-imagined/study.jsonl")}
FRESH = (1, 2)
"""seeds on which nothing was chosen"""
PAIRS = (
    "caf-imagined less mib",
    "caf-imagined less caf-alone",
    "caf-imagined less caf",
    "caf-imagined-similar less mib",
    "caf-imagined-similar less mib-similar",
    "caf-imagined-similar less caf-imagined",
    "caf less mib",
)


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


@pytest.mark.parametrize("name", RUNS)
def test_rows_of_runs_are_those_of_the_records(name: str) -> None:
    run = read_run(RUNS[name])
    *most, lost = figures(run.steps[-1].matrix)
    row = " | ".join([*name.rsplit("-s", 1), *(f"{value:.1f}" for value in most), f"{lost:.0f}"])
    assert run.finished and f"| {row} |" in PAGE.read_text()


def test_the_page_has_a_row_for_each_run() -> None:
    names = {name.rsplit("-s", 1)[0] for name in RUNS}
    rows = [line for line in PAGE.read_text().splitlines() if line.split(" | ")[0][2:] in names]
    assert len(rows) == len(RUNS)


def counts_of(label: str) -> dict[int, ImageCounts]:
    found = {seed: read_counts(RUNS[f"{label}-s{seed}"], 5) for seed in FRESH}
    return {seed: counts for seed, counts in found.items() if counts is not None}


@pytest.mark.parametrize("pair", PAIRS)
def test_differences_are_those_of_the_images(pair: str) -> None:
    """On seeds that chose nothing, paired over the images."""
    ours, theirs = pair.split(" less ")
    found = differences(counts_of(ours), counts_of(theirs), num_first=15)
    assert found is not None
    cells = (found[group] for group in GROUPS)
    points = ([round(each, 1) + 0.0 for each in (x.difference, x.low, x.high)] for x in cells)  # no -0.0
    said = " | ".join(f"{middle:.1f} ({low:.1f} to {high:.1f})" for middle, low, high in points)
    assert f"| {pair} | {said} |" in PAGE.read_text()
