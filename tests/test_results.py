"""Stored results and today's defaults: `make results-check`, before results are published.

A better default makes these fail until the runs are repeated. That is no fault of the code, so `make test`
leaves them out: there the records are judged by their own recipes (tests/test_docs.py).
"""

import re
from pathlib import Path
from statistics import mean, stdev

import pytest
from stored_studies import ROOT, VOC256, assert_in_docs, pages, scores_on, words_of
from test_docs import bench_records

from segue.core import plugins
from segue.core.config import read_back
from segue.core.metrics import RunScores, run_scores
from segue.core.overrides import differences
from segue.core.packed import packed_places
from segue.core.records import read_run, read_yaml
from segue.engine.recipe import complete, find_recipe, resolve
from segue.report.study import study_csv, study_ranks

pytestmark = pytest.mark.results


@pytest.fixture(autouse=True)
def nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every record is there and has the recipe of today, or the test fails."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(
        "segue.studies.missing.run_all", lambda jobs, *_, **__: pytest.fail(f"to be run: {jobs}")
    )


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_study_is_that_of_today(page: Path, segue, tmp_path: Path) -> None:
    code, _, said = segue(*words_of(page), "--page", tmp_path / page.name)
    assert code == 0, said
    assert_in_docs(tmp_path / page.name, settings=True)


@pytest.mark.parametrize("split", VOC256)
def test_shipped_recipes_have_what_was_chosen(split: str) -> None:
    chosen = read_yaml(ROOT / "results" / "voc256" / "tuning" / f"voc-{split}-overlapped" / "choice.yaml")
    recipe, page = VOC256[split]
    shipped, tuned = read_yaml(find_recipe(recipe))["methods"], {*scores_on(f"{page}.md")}
    assert {name: entry for name, entry in shipped.items() if name in tuned} == chosen
    assert set(chosen) == tuned - {"finetune", "joint"}
    assert set(shipped) <= {*plugins.names("method")}


def test_runs_of_the_readme_are_those_of_today() -> None:
    for folder in sorted((ROOT / "results" / "scenes").iterdir()):
        run = read_run(folder)
        today = resolve(run.method, "scenes", "5-2", overrides=[f"train.seed={run.steps[0].seed}"])
        assert differences(read_back(complete(run.recipe)), read_back(today)) == []


def test_caf_leads_on_15_1() -> None:
    """Of all methods that keep no images, on all classes and in hIoU; and MiB on both splits."""
    methods = scores_on("voc256-15-1.md")
    for score in ("all", "hIoU"):
        assert max(methods.keys() - {"joint"}, key=lambda name: methods[name][score]) == "caf"
    for (_, page), least in zip(VOC256.values(), (3, 0), strict=True):
        methods = scores_on(f"{page}.md")
        assert methods["caf"]["all"] - methods["mib"]["all"] >= least


def test_the_records_show_the_point() -> None:
    """What tests/test_slow_forgetting.py trains for ten minutes, on the records of the same recipes."""
    scores: dict[str, list[RunScores]] = {}
    for folder in sorted((ROOT / "results" / "scenes").iterdir()):
        run = read_run(folder)
        scores.setdefault(run.method, []).append(run_scores([step.matrix for step in run.steps], 5))
    final = {method: [each.final.all for each in runs] for method, runs in scores.items()}
    assert all(len(runs) == 3 for runs in scores.values())
    assert all(each.stability < 1 / 3 for each in scores["finetune"])
    assert all(each.stability >= 0.75 for each in scores["caf"])
    assert mean(final["caf"]) >= mean(final["mib"]) - 2 * stdev(final["mib"])
    assert mean(final["joint"]) == max(mean(values) for values in final.values())


def test_stored_figures_reach_what_was_aimed_at() -> None:
    """Losses three times as fast and 25 times leaner than the plain way; CAF near the bare network.

    One aim was missed and is not asserted: half the memory of the plain way, for ResNet-101 at batch 1, even
    with checkpointing; EfficientNet-Lite0 with 21 channels needs checkpointing. docs/performance.md says so.
    """
    records = bench_records()
    for row in records["losses"]["rows"]:
        if row["what"].startswith("unbiased"):
            assert row["faster"] >= 3 and row["leaner"] >= 25
    for row in records["step"]["rows"]:
        assert row["caf_by_floor"] <= {21: 1.4, 151: 1.6}[row["channels"]]
    assert all(0.8 <= case["ratio"] <= 1.2 for case in records["plan"]["cases"].values())


@pytest.mark.parametrize(
    ("file", "runs"),
    [("voc256.csv", "voc256/compare"), ("scenes.csv", "compare"), ("voc256-2.csv", "voc256-2/compare")],
)
def test_tables_to_load_are_made_of_the_records(file: str, runs: str) -> None:
    folder = Path(__file__).parents[1] / "results"
    study = folder / runs / "study.jsonl"
    stored = packed_places(study) if study.is_file() else sorted((folder / runs).glob("*/*-s?"))
    assert (folder / file).read_text() == study_csv([read_run(place) for place in stored])


def test_ranks_are_those_of_the_records() -> None:
    runs = [read_run(place) for place in packed_places(ROOT / "results/voc256-2/compare/study.jsonl")]
    chart, stored = study_ranks(runs), ROOT / "docs/results/figures/voc256-2-ranks.svg"
    assert chart is not None
    for line in chart.alt.partition("settings: ")[2].split(", "):
        name, rank = line.split()
        assert re.search(rf">({name}  {rank}|{rank}  {name})<", stored.read_text(encoding="utf-8")), line
