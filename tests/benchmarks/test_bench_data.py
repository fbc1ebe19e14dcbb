"""The benchmark of reading data: what it writes, compares and shows."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from benchmarks import data as bench
from benchmarks.made_up import Masks, decode, write_voc
from segue.core.errors import UserError
from segue.data.batches import relabel
from segue.data.check_files import check_all
from segue.data.datasets.voc import Config, Voc
from segue.data.index import class_index

CPU = torch.device("cpu")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_voc(tmp_path / "voc", 70, 40, 24)
    return tmp_path / "voc"


def test_made_up_files_are_a_voc_folder(root: Path) -> None:
    for split in ("train", "test"):
        dataset = Voc(Config(root=str(root)), split)
        assert len(dataset) == 70 and dataset.read(69).image.shape == (24, 40, 3)
    present = class_index(dataset)
    assert present[:, 1:21].any(1).all(), "every image shows a class"
    assert len(np.unique(present[:64], axis=0)) > 30, "and they differ"
    assert np.array_equal(present[64:], present[:6]), "from the 65th on they are the first ones again"


def test_masks_by_themselves_give_the_same_rows(root: Path) -> None:
    config = Config(root=str(root))
    rows = np.concatenate([found.pixels > 0 for found in check_all(Masks(config, "train"))])
    assert np.array_equal(rows, class_index(Voc(config, "train")))
    for path in (root / "JPEGImages").iterdir():
        path.unlink()
    again = np.concatenate([found.pixels > 0 for found in check_all(Masks(config, "train"))])
    assert np.array_equal(again, rows)


def test_other_side_decodes_every_pixel(root: Path) -> None:
    pairs = Voc(Config(root=str(root)), "train").pairs
    assert decode([pair.mask for pair in pairs[:3]]) == 3 * 40 * 24
    assert decode([pairs[0].image]) == 3 * 40 * 24


def test_processes_of_the_other_side_load_no_torch() -> None:
    code = "import sys, benchmarks.made_up, segue.data.check_files; print('torch' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"


@pytest.mark.parametrize("ids", [range(256), [0]])
def test_relabelling_is_a_look_up(ids) -> None:
    rng = np.random.default_rng(0)
    table = rng.permutation(256).astype(np.uint8)
    mask = rng.choice(list(ids), (30, 40)).astype(np.uint8)
    for each in (mask, mask.T, mask[::2, ::-3]):
        labels = relabel(table, each)
        assert labels.dtype == np.uint8 and np.array_equal(labels, table[each]) and labels.flags.writeable


def test_relabelling_is_much_quicker_than_python() -> None:
    for row in bench.relabel_rows(1):
        assert row.ratio < 1 / 50 and row.theirs > row.ours


def test_better_of_threads_and_processes_is_compared(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def turns(calls, rounds, device):
        asked.append(len(calls))
        for call in calls:
            call()
        return [[6.0, 6.0, 9.0], [3.0, 8.0, 9.0], [5.0, 4.0, 12.0]]

    monkeypatch.setattr(bench, "in_turns", turns)
    rows = bench.index_rows(root, 3, bench.Bar())
    assert asked == [3, 3] and [row.ratio for row in rows] == [1.5, 1.5]  # 6/3, 6/4, 9/9
    assert [(row.ours, row.theirs) for row in rows] == [(6, 4), (6, 4)]


def test_waiting_is_what_next_takes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a clock that ticks at each look: an iteration looks at it twice around `next`."""
    trained, clock = [], count()
    monkeypatch.setattr(bench, "update", lambda session, batch, *_: trained.append(batch))
    monkeypatch.setattr(bench, "incremental_method", lambda *_: None)
    monkeypatch.setattr(bench.time, "perf_counter", lambda: next(clock))
    row = bench.loader_row(root, 6, 0, CPU)
    assert len(trained) == bench.BEGINNING + 6 and all(len(batch) == 16 for batch in trained)
    assert trained[0].images.shape[2:] == (128, 128) and trained[0].labels.unique().numel() > 1
    assert row.ours == pytest.approx(6 / 13)


def test_table_shows_what_was_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bench, "LOADED", 20)
    wrote = []
    write = bench.write_voc
    monkeypatch.setattr(bench, "write_voc", lambda *a: wrote.append(a) or write(*a))
    monkeypatch.setattr(bench, "index_rows", lambda *_: [bench.Row("masks", "PIL", 2.0, 4.0, 0.5)])
    monkeypatch.setattr(bench, "loader_row", lambda *a: bench.Row("waits", f"{a[1:3]}", 0.0123))
    text = io.StringIO()
    save = tmp_path / "figures.json"
    rows = bench.bench_data(3, 1, 2, "cpu", save, Console(file=text, width=130))
    stored = json.loads(save.read_text())
    assert stored["images"] == 3 and [bench.Row(**row) for row in stored["rows"]] == rows
    assert [row.what for row in rows] == ["masks", *["relabelling 512 x 512"] * 2, "waits"]
    assert [each[1:] for each in wrote] == [(3, 256, 256), (20, 500, 375)]
    assert not wrote[0][0].parent.exists(), "nothing is left"
    for word in ("3 images of 256 px", "2.00 s", "4.00 s", "0.5", "1.2% of the time", "(12, 2)"):
        assert word in text.getvalue()


@pytest.mark.parametrize("numbers", [(0, 3), (5, 0)])
def test_nothing_to_measure(numbers: tuple[int, int]) -> None:
    with pytest.raises(UserError, match="at least one"):
        bench.bench_data(*numbers)
