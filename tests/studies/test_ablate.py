"""Ablation tables: every shipped row is a run, its numbers are the paper's, and nothing is run twice."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest
import torch
from short_runs import SHORT

from segue.core import plugins
from segue.core.ablation import Row, read_ablation
from segue.core.config import as_dict
from segue.core.errors import UserError
from segue.core.progress import Display
from segue.core.records import read_run
from segue.engine.recipe import find_recipe
from segue.engine.run import run
from segue.models.segmenter import Segmenter
from segue.studies import pool as grid
from segue.studies.ablate import row_recipe, table_files

TABLES = {
    path.stem: path for path in sorted((Path(__file__).parents[2] / "recipes/ablations").glob("*.yaml"))
}
ROWS = [(name, index) for name, path in TABLES.items() for index in range(len(read_ablation(path).rows))]
TINY = ("model.backbone=tiny", "model.head=tiny", "model.output_stride=8")
PAPER_TABLES = os.environ.get("SEGUE_PAPER_TABLES")


def config_of(table: str, index: int, dataset: str, *words: str, seed: int = 0):
    found = read_ablation(TABLES[table])
    return row_recipe(found, found.rows[index], dataset, None, None, words, seed)


def test_every_shipped_table_is_found_by_its_name():
    assert table_files() == TABLES and len(TABLES) == 8
    assert {"table3", "table5", "table6", "table7", "figure6-ad", "figure6-kd"} <= set(TABLES)


@pytest.mark.parametrize("dataset", ["scenes", "voc"])
@pytest.mark.parametrize(("table", "index"), ROWS)
def test_every_row_resolves_and_builds(table, index, dataset):
    config = config_of(table, index, dataset, *TINY, seed=3)
    setting = read_ablation(TABLES[table]).settings[dataset]
    assert config.scenario.dataset == dataset and config.train.seed == 3
    assert (config.scenario.split, config.scenario.mode) == (setting["split"], setting["mode"])
    kind = plugins.find("method", config.method.name)
    with torch.device("meta"):
        method = kind(config.method.params, Segmenter(config.model))
    assert (method.model.fusion is not None) is config.method.params.layer.enabled


@pytest.mark.parametrize("table", sorted(TABLES))
def test_rows_of_a_table_are_different_experiments(table):
    rows = read_ablation(TABLES[table]).rows
    found = [str(config_of(table, index, "voc").method.params) for index in range(len(rows))]
    assert len(set(found)) == len(rows) == len({row.run for row in rows}) == len({row.name for row in rows})


@pytest.mark.parametrize("dataset", ["scenes", "voc"])
@pytest.mark.parametrize("words", [(), ("method.params.kd_weight=3", "method.params.variant=official")])
def test_rows_that_share_a_run_are_the_same_experiment(dataset, words):
    found: dict[str, dict[str, dict]] = {}
    for table, index in ROWS:
        row = read_ablation(TABLES[table]).rows[index]
        plain = as_dict(config_of(table, index, dataset, *words))
        for key in ("split", "mode"):  # tables of other splits have other folders
            del plain["scenario"][key]
        found.setdefault((row.run, plain["method"]["params"]["variant"]), {})[table] = plain
    assert {len(recipes) for key, recipes in found.items() if key[0] == "baseline"} == {2}
    assert max(map(len, found.values())) >= 4
    for key, recipes in found.items():
        first, *others = recipes.values()
        assert all(other == first for other in others), f"{key}: {list(recipes)}"


def test_words_reach_every_row_but_do_not_undo_it():
    words = [
        "method.params.balanced=false",
        "method.params.ad.maps=z",
        "method.params.layer.fusion=true",
        "method.params.ad_weight=8",
        "method.params.kd_weight=9",
        "method.name=mib",
        "train.epochs=2",
    ]
    head = config_of("table7", 1, "scenes", *words)
    assert head.method.name == "caf" and head.train.epochs == 2
    assert head.method.params.balanced is True and head.method.params.ad.maps == "h"
    assert head.method.params.kd_weight == 9.0, "what does not make the row is free"
    baseline = config_of("table3", 0, "scenes", *words).method.params
    assert baseline.kd_weight == baseline.ad_weight == 0.0
    assert not baseline.layer.enabled


def test_words_win_over_what_all_rows_share():
    table, file = read_ablation(TABLES["table3"]), find_recipe("voc256-2.yaml")
    stored = row_recipe(table, table.rows[8], "scenes", None, None, TINY, 0, file).method.params
    assert stored.ad_weight == 30 and stored.layer_since == 0, "the recipe says 1"
    params = config_of("table3", 8, "scenes", "method.params.layer_since=1").method.params
    assert params.layer_since == 1 and params.rehearsal.weight == 0


def test_options_choose_split_mode_and_seed():
    table = read_ablation(TABLES["table7"])
    config = row_recipe(table, table.rows[0], "scenes", "4-2", "disjoint", ["train.seed=1"], 7)
    assert (config.scenario.split, config.scenario.mode, config.train.seed) == ("4-2", "disjoint", 7)


@pytest.mark.parametrize(("table", "weight"), [("figure6-ad", "ad_weight"), ("figure6-kd", "kd_weight")])
def test_factors_multiply_what_the_recipe_says(table, weight):
    factors = (0.1, 1, 10, 100)
    for words, base in (((), None), ((f"method.params.{weight}=5",), 5.0)):
        found = [config_of(table, index, "scenes", *words).method.params for index in range(4)]
        base = base or {"ad_weight": 0.01, "kd_weight": 10.0}[weight]
        expected = pytest.approx([base * factor for factor in factors])
        assert [getattr(values, weight) for values in found] == expected
        other = {"ad_weight": "kd_weight", "kd_weight": "ad_weight"}[weight]
        assert len({getattr(values, other) for values in found}) == 1


def test_factor_comes_after_the_settings_of_its_row():
    table = read_ablation(TABLES["table7"])
    row = Row("x", "x", {"kd_weight": 4}, {"kd_weight": 2.5, "ad_weight": 2})
    words = ["method.params.kd_weight=100"]
    found = row_recipe(table, row, "scenes", None, None, words, 0).method.params
    assert found.kd_weight == 10.0 and found.ad_weight == pytest.approx(0.02)


# The paper's numbers


def paper_rows(document: dict, table: str) -> list[tuple[str, str, list[float]]]:
    """(row, setting, old/new/all) of the paper in the form of our tables; Table 3 lists single classes."""
    found = []
    if table == "table3":
        for name, row in document["table3_ablation_voc_15-5_disjoint"]["rows"].items():
            values = row["IoU"]
            new = [values[k] for k in ("pottedplant", "sheep", "sofa", "train", "tvmonitor")]
            means = [values["mIoU_old"], round(sum(new) / len(new), 1), values["mIoU"]]
            found.append((name, "voc 15-5 disjoint", means))
        return found
    key = next(key for key in document if key.startswith(f"{table}_"))
    settings = {"VOC 15-5": "voc 15-5 disjoint", "ADE 100-50": "ade20k 100-50 divided"}
    for name, row in document[key]["rows"].items():
        for setting, values in row.items():
            ours = settings.get(setting) or f"voc {setting.replace('/', ' ')}"
            found.append((name, ours, list(values.values())))
    return found


def plain_name(name: str) -> str:
    return re.sub(r"[^a-z+]", "", name.lower().replace("&", "").replace(" + ", "+"))


@pytest.mark.data
@pytest.mark.skipif(not PAPER_TABLES, reason="SEGUE_PAPER_TABLES names no file")
@pytest.mark.parametrize("table", ["table3", "table5", "table6", "table7"])
def test_numbers_of_the_paper_are_the_paper_s(table):
    document = json.loads(Path(PAPER_TABLES).read_text(encoding="utf-8"))
    expected = {(plain_name(n), setting): values for n, setting, values in paper_rows(document, table)}
    rows = read_ablation(TABLES[table]).rows
    ours = {
        (plain_name(row.name), setting): list(values) for row in rows for setting, values in row.paper.items()
    }
    assert ours == expected


# Running a table


def cells(text: str, label: str) -> list[str]:
    line = next(line for line in text.splitlines() if re.match(rf"{re.escape(label)} +[\d-]", line))
    return re.findall(r"\d+\.\d|-(?=\s|$)", line.removeprefix(label))


def test_a_table_is_run_once_shown_and_never_run_again(segue, tmp_path):
    out, page = tmp_path / "out", tmp_path / "page.md"
    words = ("ablate", "table7", "--on", "scenes", "--split", "2-1", "--out", out, "--page", page, *SHORT)
    words = (*words, f"model.weights={tmp_path / 'none.pth'}", "model.weights=null")
    code, first, error = segue(*words)
    assert code == 0 and error.startswith("Next: segue ")
    names = ("caf-ad-bkd-s0", "caf-ad-bkd-h-s0", "caf-ad-bkd-z-s0")
    folders = [f"out/scenes-2-1-overlapped/{name}" for name in names]
    assert segue.runs == folders and "Runs to do: 3; done: 0." in first
    for label, paper in {
        "z + h": ["57.2", "15.5", "46.7"],
        "h": ["56.2", "15.2", "45.9"],
        "z": ["56.4", "15.3", "46.1"],
    }.items():
        ours, theirs = cells(first, label)[:3], cells(first, label)[3:]
        assert theirs == paper and all(0 <= float(value) <= 100 for value in ours)
        assert f"| {label} | {' | '.join([*ours, *theirs])} |" in page.read_text()
    assert "Ours: scenes 2-1 overlapped, one seed" in first and "Paper: voc 15-1 disjoint." in first
    assert "pairs of rows" not in first, "one seed says nothing of their spread"
    assert "`segue ablate table7 --on scenes --split 2-1 --seeds 1 --out FOLDER/out" in page.read_text()
    assert " model.weights=FOLDER/none.pth " in page.read_text() and str(tmp_path) not in page.read_text()

    # again: nothing is run, not even without checkpoints and images
    for folder in folders:
        shutil.rmtree(tmp_path / folder / "checkpoints")
        os.unlink(tmp_path / folder / "scenario.json")
    code, second, _ = segue(*words)
    assert code == 0 and segue.runs == [] and "Runs to do" not in second
    assert [cells(second, label) for label in ("z + h", "h", "z")] == [
        cells(first, label) for label in ("z + h", "h", "z")
    ]

    # another recipe in the place of one row is refused before anything is run
    code, _, error = segue(*words, "optim.lr_next=0.5")
    assert code == 2 and segue.runs == []
    assert "caf-ad-bkd-s0 was started with another recipe" in error and "optim.lr_next" in error
    (tmp_path / folders[1] / "steps" / "1.json").unlink()
    assert not read_run(tmp_path / folders[1]).finished
    code, third, _ = segue(*words, "train.save_seconds=5")
    assert segue.runs == [folders[1]] and "Runs to do: 1; done: 2." in third and code == 0


def test_row_that_fails_does_not_take_the_others_with_it(segue, tmp_path, monkeypatch):
    tried = []

    def diverging(config, folder, *_) -> None:
        tried.append(folder.name)
        if folder.name != "caf-ad-bkd-z-s0":
            raise UserError(f"{config.method.params.ad.maps} diverged.")
        run(config, folder, display=Display(quiet=True))

    monkeypatch.setattr(grid, "run", diverging)
    words = ("table7", "--on", "scenes", "--split", "2-1", "--page", tmp_path / "page.md", *SHORT)
    code, text, error = segue("ablate", *words, "--out", tmp_path / "out")
    assert tried == ["caf-ad-bkd-s0", "caf-ad-bkd-h-s0", "caf-ad-bkd-z-s0"]
    assert code == 2 and "caf-ad-bkd-s0: z+h diverged." in error and "caf-ad-bkd-h-s0: h diverged." in error
    assert cells(text, "h") == ["-", "-", "-", "56.2", "15.2", "45.9"]
    assert "-" not in cells(text, "z") and len(cells(text, "z")) == 6
    assert "z + h, h" in " ".join(text.split())
    assert not (tmp_path / "page.md").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tabel7"], "There is no ablation table 'tabel7'. Did you mean 'table7'?"),
        (["table7", "zzz"], "There is no ablation table 'zzz'."),
        (["train.epochs=1"], "Which table? Name one of: "),
        (["table7", "train.epoch=1"], "Unknown key 'train.epoch'. Did you mean 'train.epochs'?"),
        (["table7", "method.params.variant=papr"], "'method.params.variant' is 'papr'"),
    ],
)
def test_wrong_words_are_refused(segue, tmp_path, words, message):
    code, _, error = segue("ablate", *words, "--on", "scenes", "--out", tmp_path / "out")
    assert code == 2 and message in " ".join(error.split()) and segue.runs == []
    assert not (tmp_path / "out").exists()


def test_foreign_folder_in_the_place_of_a_row_is_refused(segue, tmp_path):
    place = tmp_path / "out" / "scenes-5-2-overlapped" / "caf-ad-bkd-h-s0"
    place.mkdir(parents=True)
    (place / "notes.txt").write_text("mine")
    code, _, error = segue("ablate", "table7", "--on", "scenes", "--out", tmp_path / "out")
    assert code == 2 and "caf-ad-bkd-h-s0 is not a run folder" in error and segue.runs == []
    assert [path.name for path in place.iterdir()] == ["notes.txt"]


def test_seeds_are_those_of_the_option(segue, tmp_path):
    code, _, error = segue("ablate", "table3", "--on", "scenes", "train.seed=3", "--out", tmp_path)
    assert code == 2 and "'train.seed' is not free" in error


def test_runs_of_a_variant_lie_in_a_folder_of_their_own(segue, tmp_path, monkeypatch):
    planned = []
    monkeypatch.setattr("segue.studies.missing.run_all", lambda jobs, *_, **__: planned.extend(jobs))
    words = ("table3", "table6", "--on", "scenes", "--seeds", "2", "method.params.variant=paper")
    assert segue("ablate", *words, "--out", tmp_path)[0] == 0
    assert {job.folder.parent.name for job in planned} == {"scenes-5-2-overlapped-paper"}
    names = [job.folder.name for job in planned]
    assert len(names) == len(set(names)) == 2 * (13 + 3), "baseline and caf-ad stand in both tables"
    assert {job.config.train.seed for job in planned} == {0, 1} and all(job.resume for job in planned)
    assert all(name.endswith(f"-s{job.config.train.seed}") for name, job in zip(names, planned, strict=True))
    assert {job.config.method.params.variant for job in planned} == {"paper"}
